// Read bandwidth of this machine, as the denominator of every "share of peak" that we print.
#pragma once
#include <cstdint>

namespace edge {

// Bytes per second at which `threads` threads read `bytes` of memory together, each in four streams, best of `rounds`.
double read_bandwidth(int threads, int64_t bytes, int rounds);

}  // namespace edge
