// Which instruction sets really work here: each is tried in a child process. Owns: that child. Needs: kernels.h. Never: the
// signal handlers of this process, nor which set is the best.
#pragma once
#include "kernels.h"

namespace edge {

struct Candidate {
  const Kernels *kernels;
  bool (*is_promised)();  // by the processor and the system
  bool (*ask)();          // asks the system for leave to use it, in the process that will; null: none is needed
};

constexpr int PROBE_MS = 2000;  // a child that takes longer hangs; a healthy one takes less than one

// Bit i: candidates[i] is promised, survives some products in a child process and gives the bits of `truth`. Some virtual
// machines promise what they then refuse, so a child may die of it, or hang: the candidate is absent, and so are those behind
// it, which have more than it has. Where the system starts no child, what needs no leave is believed and compared here.
uint32_t probe(const Kernels &truth, const Candidate *candidates, int count, int limit_ms);

}  // namespace edge
