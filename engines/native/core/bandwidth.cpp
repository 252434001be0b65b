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
  int64_t part_bytes;  // a multiple of MOST_STREAMS lines
  int parts, streams, ahead;
  Counter counter;  // parts go to whoever asks: all is read, however many threads the system lets run
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
  const int64_t bytes = job.part_bytes / COUNT;
  return job.ahead ? read_streams<COUNT, true>(data, bytes, job.ahead) : read_streams<COUNT, false>(data, bytes, 0);
}

int64_t read_part(const Job &job, const uint8_t *part) {
  switch (job.streams) {
    case 1: return read_count<1>(job, part);
    case 2: return read_count<2>(job, part);
    case 4: return read_count<4>(job, part);
    case 8: return read_count<8>(job, part);
    default: return read_count<MOST_STREAMS>(job, part);
  }
}

void read_parts(void *context, int) {
  Job &job = *static_cast<Job *>(context);
  int32_t part, end;
  int64_t sum = 0;
  while (job.counter.take(job.parts, 1, &part, &end)) sum ^= read_part(job, job.data + part * job.part_bytes);
  volatile int64_t keep = sum;  // the reads must not be optimised away
  (void)keep;
}

}  // namespace

Bandwidth best_bandwidth(int threads, int64_t bytes, int rounds) {
  Team team(threads);
  if (team.size() == 0) return {};
  const int64_t part_bytes = bytes / team.size() / (MOST_STREAMS * LINE) * (MOST_STREAMS * LINE);
  const int64_t total = part_bytes * team.size();
  const size_t allocated = static_cast<size_t>(align_up(total + AHEAD[5] + LINE, HUGE_PAGE));
  void *block = nullptr;
  if (total == 0 || posix_memalign(&block, HUGE_PAGE, allocated)) return {};
  madvise(block, allocated, MADV_HUGEPAGE);  // where the system has none it is a little slower, nothing else
  std::memset(block, 1, allocated);
  Bandwidth best;
  for (const int streams : STREAMS) {
    for (const int ahead : AHEAD) {
      Job job{static_cast<const uint8_t *>(block), part_bytes, team.size(), streams, ahead, {}};
      for (int round = 0; round < rounds; ++round) {
        job.counter.next.store(0, std::memory_order_relaxed);
        const auto start = std::chrono::steady_clock::now();
        team.run(read_parts, &job);
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
