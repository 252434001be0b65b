// Python's view of the measurements: what the machine allows, and how fast each kernel is.
#include "binding_bench.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <string>
#include <tuple>

#include "bandwidth.h"
#include "dot_rate.h"

namespace nb = nanobind;

void bind_bench(nb::module_ &m) {
  m.def(
      "best_bandwidth",
      [](int threads, int64_t bytes, int rounds) {
        const edge::Bandwidth best = edge::best_bandwidth(threads, bytes, rounds);
        return std::tuple(best.bytes_per_s, best.streams, best.ahead);
      },
      nb::arg("threads"), nb::arg("bytes"), nb::arg("rounds"), nb::call_guard<nb::gil_scoped_release>(),
      "Bytes a second that `threads` threads read together at best, streams a thread and bytes of prefetch of the best.");
  m.def(
      "dot_rate",
      [](const std::string &isa, int kind, int threads, int rounds) {
        return edge::dot_rate(isa.c_str(), kind, threads, rounds);
      },
      nb::arg("isa"), nb::arg("kind"), nb::arg("threads"), nb::arg("rounds"), nb::call_guard<nb::gil_scoped_release>(),
      "Operations a second of a kind of dot product (dot_rate.h); 0 where the instruction set has none.");
}
