// Python's view of the measurements: what the machine allows, and how fast each kernel is.
#include "binding_bench.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bandwidth.h"
#include "dot_rate.h"
#include "kernel_timing.h"
#include "plan.h"

namespace nb = nanobind;

namespace {

constexpr size_t CASE_NUMBERS = 11;

// KernelCase from its numbers, in the order of the struct. Kernels take no rows or heads that are none, and no forms that are
// none.
edge::KernelCase read_case(const std::vector<int64_t> &v) {
  if (v.size() != CASE_NUMBERS) throw std::invalid_argument("a kernel case has 11 numbers");
  for (size_t i = 0; i + 1 < v.size(); ++i) {
    if (v[i] < 0 || v[i] > (1 << 24)) throw std::invalid_argument("a kernel case holds a number out of range");
  }
  const auto at = [&v](size_t i) { return static_cast<int32_t>(v[i]); };
  const edge::KernelCase timed{at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9), v[10]};
  const bool has_pages = timed.kernel >= edge::TimedKernel::rotary;
  if (timed.bytes < 0 || timed.bytes > (int64_t(1) << 40) || timed.rows < 1) {
    throw std::invalid_argument("a kernel case of no rows, or of no memory");
  }
  if (has_pages && (timed.kv_heads < 1 || timed.heads < 1 || timed.heads % timed.kv_heads || timed.head_dim < 2 ||
                    timed.head_dim % 2 || timed.context < timed.rows)) {
    throw std::invalid_argument("a kernel case whose heads make no attention");
  }
  if (!has_pages && timed.inputs < 1) throw std::invalid_argument("a kernel case of no inputs");
  if (timed.kernel <= edge::TimedKernel::gated) {
    const edge::Status form = edge::check_form({timed.kind, edge::STRIP, timed.inputs, timed.group, timed.minima, 0, 0}, 0);
    if (!form.good() || timed.kind == edge::WeightKind::fp32) throw std::invalid_argument("a kernel case of no matrix");
  }
  return timed;
}

std::tuple<double, double, double> time_case(const std::string &isa, const std::vector<int64_t> &numbers, int threads,
                                             double seconds) {
  const edge::KernelCase timed = read_case(numbers);
  const edge::Kernels *kernels = edge::find_kernels(isa.c_str());
  if (!kernels) throw std::invalid_argument("this machine or build has no instruction set named " + isa);
  nb::gil_scoped_release unlocked;
  const edge::KernelTiming found = edge::time_kernel(*kernels, timed, threads, seconds);
  return {found.seconds, found.bytes, found.operations};
}

}  // namespace

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
  m.def("time_kernel", &time_case, nb::arg("isa"), nb::arg("numbers"), nb::arg("threads"), nb::arg("seconds"),
        "Seconds, bytes and operations of a pass of one kernel (kernel_timing.h); 0 seconds: no memory.");
}
