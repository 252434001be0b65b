#include "bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "team.h"

namespace edge {
namespace {

constexpr int STREAMS = 4;
constexpr int64_t LINE = 64;
constexpr int64_t AHEAD = 2048;  // bytes of prefetch: about the latency of memory at 10 GB/s a stream

struct Job {
  const uint8_t *data;
  int64_t bytes_a_stream;  // a multiple of LINE
  int64_t sums[64];
};

void read_part(void *context, int thread) {
  Job &job = *static_cast<Job *>(context);
  const uint8_t *part = job.data + thread * STREAMS * job.bytes_a_stream;
  int64_t sums[STREAMS] = {};
  for (int64_t at = 0; at < job.bytes_a_stream; at += LINE) {
    for (int stream = 0; stream < STREAMS; ++stream) {
      const uint8_t *line = part + stream * job.bytes_a_stream + at;
      __builtin_prefetch(line + AHEAD);
      int64_t words[LINE / 8];
      std::memcpy(words, line, LINE);
      for (const int64_t word : words) sums[stream] ^= word;
    }
  }
  job.sums[thread % 64] = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
}

}  // namespace

double read_bandwidth(int threads, int64_t bytes, int rounds) {
  Team team(threads);
  const int64_t stream_bytes = bytes / (team.size() * STREAMS) / LINE * LINE;
  const int64_t total = stream_bytes * team.size() * STREAMS;
  void *block = nullptr;
  if (total == 0 || posix_memalign(&block, 4096, static_cast<size_t>(total + AHEAD + LINE))) return 0.0;
  std::memset(block, 1, static_cast<size_t>(total + AHEAD + LINE));
  Job job{static_cast<const uint8_t *>(block), stream_bytes, {}};
  double best = 0.0;
  for (int round = 0; round <= rounds; ++round) {  // the first one warms up
    const auto start = std::chrono::steady_clock::now();
    team.run(read_part, &job);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (round > 0) best = std::max(best, static_cast<double>(total) / took.count());
  }
  volatile int64_t keep = job.sums[0];  // the reads must not be optimised away
  (void)keep;
  std::free(block);
  return best;
}

}  // namespace edge
