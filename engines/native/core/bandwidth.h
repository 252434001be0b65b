// Read bandwidth of this machine, as the denominator of every "share of peak" that we print.
#pragma once
#include <cstdint>

namespace edge {

struct Bandwidth {
  double bytes_per_s = 0.0;  // of all threads together; 0: there was no memory to read
  int streams = 0;           // that each thread reads at once
  int ahead = 0;             // bytes from what a stream reads to what it prefetches; 0: it does not
};

// The best way to read `bytes` of memory with `threads` threads: each of 1 to 16 streams a thread with each of several
// distances of prefetch, best of `rounds`.
Bandwidth best_bandwidth(int threads, int64_t bytes, int rounds);

inline double read_bandwidth(int threads, int64_t bytes, int rounds) {
  return best_bandwidth(threads, bytes, rounds).bytes_per_s;
}

}  // namespace edge
