// How fast one kernel is on one instruction set, alone, on the threads that an engine would have. Owns: the memory that it runs
// on. Needs: kernels.h, team.h. Never: a model.
#pragma once
#include <cstdint>

#include "kernels.h"

namespace edge {

namespace TimedKernel {
enum : int { matmul, gated, norm, rotary, decode, prefill };  // the last two: attention of one row, and of 128
}

struct KernelCase {
  int32_t kernel;  // TimedKernel
  int32_t rows;    // activation rows
  // Matrices; norm reads `inputs` alone.
  int32_t kind, group, minima;  // WeightKind
  int32_t inputs;
  // Attention of one sequence.
  int32_t heads, kv_heads, head_dim, context;
  int64_t bytes;  // of weights, or of pages, in all: beyond the cache, or what memory gives is not measured
};

struct KernelTiming {
  double seconds = 0.0;     // of the best pass; 0: memory or threads could not be had
  double bytes = 0.0;       // that a pass reads of weights, of pages, or of rows
  double operations = 0.0;  // multiplications and additions of a pass; 0 where they are not what limits it
};

// Passes until `seconds` are over, one at least behind the one that warms up.
KernelTiming time_kernel(const Kernels &kernels, const KernelCase &timed, int threads, double seconds);

}  // namespace edge
