#include "bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "sizes.h"
#include "team.h"

namespace edge {
namespace {

constexpr int64_t LINE = 64, HUGE_PAGE = 2 << 20;
constexpr int MOST_STREAMS = 16, STREAMS[] = {1, 2, 4, 8, MOST_STREAMS};
constexpr int AHEAD[] = {0, 512, 1024, 2048, 4096, 8192};  // 2,048 is about the latency of memory at 10 GB/s a stream

struct Job {
  const uint8_t *data;
  int64_t thread_bytes;  // a multiple of MOST_STREAMS lines
  int streams, ahead;
};

template <int COUNT, bool PREFETCH>
int64_t read_streams(const uint8_t *data, int64_t stream_bytes, int64_t ahead) {
  int64_t sums[COUNT] = {};
  for (int64_t at = 0; at < stream_bytes; at += LINE) {
    for (int stream = 0; stream < COUNT; ++stream) {
      const uint8_t *line = data + stream * stream_bytes + at;
      if constexpr (PREFETCH) __builtin_prefetch(line + ahead);
      int64_t words[LINE / 8];
      std::memcpy(words, line, LINE);
      for (const int64_t word : words) sums[stream] ^= word;
    }
  }
  int64_t all = 0;
  for (const int64_t sum : sums) all ^= sum;
  return all;
}

template <int COUNT>
int64_t read_count(const Job &job, const uint8_t *data) {
  const int64_t bytes = job.thread_bytes / COUNT;
  return job.ahead ? read_streams<COUNT, true>(data, bytes, job.ahead) : read_streams<COUNT, false>(data, bytes, 0);
}

void read_part(void *context, int thread) {
  const Job &job = *static_cast<const Job *>(context);
  const uint8_t *part = job.data + thread * job.thread_bytes;
  int64_t sum = 0;
  switch (job.streams) {
    case 1: sum = read_count<1>(job, part); break;
    case 2: sum = read_count<2>(job, part); break;
    case 4: sum = read_count<4>(job, part); break;
    case 8: sum = read_count<8>(job, part); break;
    case MOST_STREAMS: sum = read_count<MOST_STREAMS>(job, part); break;
  }
  volatile int64_t keep = sum;  // the reads must not be optimised away
  (void)keep;
}

}  // namespace

Bandwidth best_bandwidth(int threads, int64_t bytes, int rounds) {
  Team team(threads);
  if (team.size() == 0) return {};
  const int64_t thread_bytes = bytes / team.size() / (MOST_STREAMS * LINE) * (MOST_STREAMS * LINE);
  const int64_t total = thread_bytes * team.size();
  const size_t allocated = static_cast<size_t>(align_up(total + AHEAD[5] + LINE, HUGE_PAGE));
  void *block = nullptr;
  if (total == 0 || posix_memalign(&block, HUGE_PAGE, allocated)) return {};
  madvise(block, allocated, MADV_HUGEPAGE);  // where the system has none it is a little slower, nothing else
  std::memset(block, 1, allocated);
  Bandwidth best;
  for (const int streams : STREAMS) {
    for (const int ahead : AHEAD) {
      Job job{static_cast<const uint8_t *>(block), thread_bytes, streams, ahead};
      for (int round = 0; round < rounds; ++round) {
        const auto start = std::chrono::steady_clock::now();
        team.run(read_part, &job);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        const double rate = static_cast<double>(total) / took.count();
        if (rate > best.bytes_per_s) best = {rate, streams, ahead};
      }
    }
  }
  std::free(block);
  return best;
}

}  // namespace edge
