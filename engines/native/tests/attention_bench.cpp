// Decode and prefill attention of two real shapes, with the share of this machine's peak, measured in the same run.
// Usage: attention_bench [instruction set] [tokens of a prefill task] [preset] [context]; default: every set, 32, every preset
// and context.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "attention_setup.h"

namespace edge {
namespace {

constexpr int64_t COLD_BYTES = 96 << 20;  // K and V of all layers together: more than a cache holds, as between two tokens
constexpr int CHUNK = 128;                // prefill tokens
constexpr double SECONDS = 0.25;          // of each measurement

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Runs task(index) for indices [0, tasks) on `threads` threads, again and again; seconds of the fastest round.
template <class Task>
double fastest_round(int threads, int tasks, int rounds, Task task) {
  std::atomic<int> next{0}, waiting{0};
  std::atomic<int> round{0};
  double best = 1e9, start = now();
  const double deadline = start + SECONDS;
  const auto work = [&](int thread) {
    for (int mine = 0; mine < rounds; ++mine) {
      for (int i = next++; i < tasks; i = next++) task(i, thread);
      if (++waiting == threads) {  // the last one starts the next round
        const double end = now();
        best = std::min(best, end - start);
        waiting = 0;
        next = 0;
        start = now();
        round = end > deadline && mine > 0 ? rounds : mine + 1;
      }
      while (round.load() == mine) {
      }
      if (round.load() == rounds) return;
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  work(0);
  for (std::thread &other : others) other.join();
  return best;
}

// Huge pages, as the engine's pool has them: scattered K and V otherwise measure page walks.
void use_huge_pages(std::vector<uint8_t> &memory) {
#if defined(__linux__)
  constexpr uintptr_t HUGE_PAGE = 2 << 20;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(memory.data()) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  const uintptr_t end = reinterpret_cast<uintptr_t>(memory.data() + memory.capacity()) / HUGE_PAGE * HUGE_PAGE;
  if (begin < end) madvise(reinterpret_cast<void *>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

// Formats of pages that end at or before the seal border of the last row, page 0 apart.
struct Preset {
  const char *name;
  int formats[2];  // of K and V
};
constexpr Preset PRESETS[] = {{"exact", {PageFormat::fp16, PageFormat::fp16}},
                              {"safe", {PageFormat::int8, PageFormat::int4}},
                              {"balanced", {PageFormat::int4, PageFormat::int4}},
                              {"tight", {PageFormat::int4, PageFormat::int2}}};

struct Bench {
  const AttentionKernels &kernels;
  const char *model;
  Setup setup;
  std::vector<uint8_t> pool;
  std::vector<float> qkv, out, scratch, partials;
  int64_t scratch_floats;

  Bench(const AttentionKernels &kernels, const char *model, Shape shape, int context, const Preset &preset)
      : kernels(kernels),
        model(model),
        setup(with_layers(shape, context, preset), {context}, 1),
        qkv(setup.x),
        out(size_t(setup.tokens) * shape.heads * shape.head_dim),
        scratch_floats(attend_scratch_floats(shape.head_dim) / 16 * 16 + 16) {
    pool.reserve(setup.pool_bytes);
    use_huge_pages(pool);
    pool.resize(setup.pool_bytes);
    for (int layer = 0; layer < setup.shape.layers; ++layer) {
      qkv = setup.x;
      kernels.rotary(setup.rotary(pool, qkv, layer));
    }
    for (int page = 1; page < sealed_pages(context); ++page) {
      for (const int side : {0, 1}) {
        if (preset.formats[side] == PageFormat::fp16) continue;
        const double begin = now();
        const auto spare = setup.spare.back();
        const int64_t at = int64_t(page) * 2 + side;
        const int32_t word = setup.page_table[at];
        for (int layer = 0; layer < setup.shape.layers; ++layer) {
          setup.page_table[at] = word;
          if (setup.spare.empty() || setup.spare.back() != spare) setup.spare.push_back(spare);
          setup.seal(kernels.move, pool, layer, 0, page, side, preset.formats[side]);
        }
        seal_seconds += now() - begin;
        sealed_parts += setup.shape.layers * shape.kv_heads;
      }
    }
    scratch.resize(4 * scratch_floats);
    partials.resize(size_t(4) * shape.heads * (context / BLOCK_TOKENS + 1) * (2 + shape.head_dim));
  }

  static int sealed_pages(int context) { return std::max(0, (context - 1) / SEAL_TOKENS - 1) * (SEAL_TOKENS / PAGE_TOKENS); }

  // K and V of one layer that the last row reads.
  static double layer_bytes(const Shape &shape, int context, const Preset &preset) {
    const int pages = (context + PAGE_TOKENS - 1) / PAGE_TOKENS;
    const int first = shape.window ? std::max(0, context - shape.window) / PAGE_TOKENS : 0;
    int64_t bytes = 0;
    for (int page = first; page < pages; ++page) {
      for (const int side : {0, 1}) {
        const int format = page > 0 && page < sealed_pages(context) ? preset.formats[side] : int(PageFormat::fp16);
        bytes += shape.kv_heads * part_bytes(side, format, shape.head_dim);
      }
    }
    return double(bytes);
  }

  static Shape with_layers(Shape shape, int context, const Preset &preset) {
    shape.layers = int(COLD_BYTES / layer_bytes(shape, context, preset)) + 1;
    return shape;
  }

  int seen(int position) const { return setup.shape.window ? std::min(position + 1, setup.shape.window) : position + 1; }

  // The last row, a task a (layer, kv head), through partials. Returns microseconds a layer.
  double decode(int threads) {
    const Shape &shape = setup.shape;
    const int position = setup.tokens - 1, first = (setup.tokens - seen(position)) / BLOCK_TOKENS;
    const int blocks = position / BLOCK_TOKENS + 1 - first, tasks = shape.layers * shape.kv_heads;
    const int64_t block_floats = int64_t(shape.group()) * (2 + shape.head_dim);
    const double seconds = fastest_round(threads, tasks, 1000, [&](int i, int thread) {
      AttendParams p = setup.attend(pool, qkv, out, &scratch[thread * scratch_floats], i / shape.kv_heads, 0,
                                    i % shape.kv_heads, position, position + 1);
      float *mine = &partials[thread * blocks * block_floats];
      p.block_begin = first;
      p.partials = mine;
      kernels.attend(p);
      kernels.merge({mine, blocks, shape.head_dim, shape.heads, shape.kv_heads, p.kv_head, p.out, p.out_stride, p.token_begin,
                     p.token_end});
    });
    return seconds * 1e6 / shape.layers;
  }

  // The last CHUNK rows, a task a (layer, kv head, `tokens` rows). Returns microseconds a layer.
  double prefill(int threads, int tokens) {
    const Shape &shape = setup.shape;
    const int pieces = CHUNK / tokens, layers = 4;
    const double seconds = fastest_round(threads, layers * shape.kv_heads * pieces, 1000, [&](int i, int thread) {
      const int layer = i / (shape.kv_heads * pieces) % shape.layers, piece = pieces - 1 - i % pieces;
      const int begin = setup.tokens - CHUNK + piece * tokens;
      AttendParams p = setup.attend(pool, qkv, out, &scratch[thread * scratch_floats], layer, 0, i / pieces % shape.kv_heads,
                                    begin, begin + tokens);
      p.block_begin = (begin + 1 - seen(begin)) / BLOCK_TOKENS;
      kernels.attend(p);
    });
    return seconds * 1e6 / layers;
  }

  double prefill_flops() const {  // a layer; only what the mask lets through
    double positions = 0;
    for (int row = setup.tokens - CHUNK; row < setup.tokens; ++row) positions += seen(row);
    return positions * setup.shape.heads * setup.shape.head_dim * 4.0;
  }

  double seal_seconds = 0, sealed_parts = 0;
};

// Reads memory with as many streams as decode has; GB/s.
double read_bandwidth(int threads) {
  std::vector<uint64_t> memory(COLD_BYTES / 8, 1);
  std::atomic<uint64_t> sink{0};
  const int tasks = 96, words = int(memory.size()) / tasks;
  const double seconds = fastest_round(threads, tasks, 1000, [&](int i, int) {
    uint64_t sums[8] = {};
    const uint64_t *from = &memory[size_t(i) * words];
    for (int k = 0; k < words; k += 8) {
      __builtin_prefetch(from + k + 512);
      for (int j = 0; j < 8; ++j) sums[j] += from[k + j];
    }
    for (const uint64_t sum : sums) sink += sum;
  });
  return COLD_BYTES / seconds / 1e9;
}

void run(const AttentionKernels &kernels, int task_tokens, const char *wanted, int wanted_context) {
  const Shape smol{9, 3, 64, 0, 0.0f, false, 1}, gemma{4, 1, 256, 0, 0.0f, true, 1};
  Shape gemma_window = gemma;
  gemma_window.window = 512;
  const struct {
    const char *name;
    Shape shape;
  } models[] = {{"SmolLM2-135M", smol}, {"Gemma-3-270M full", gemma}, {"Gemma-3-270M window", gemma_window}};
  for (const auto &model : models) {
    for (const int context : {128, 512, 2048, 4096, 8192}) {
      if (model.shape.window && context > 2048) continue;
      if (wanted_context && context != wanted_context) continue;
      for (const Preset &preset : PRESETS) {
        if (*wanted ? std::strcmp(wanted, preset.name) != 0 : context <= 2 * SEAL_TOKENS && preset.formats[0]) continue;
        Bench bench(kernels, model.name, model.shape, context, preset);
        const double bytes = Bench::layer_bytes(model.shape, context, preset);
        std::printf("%-10s %-18s %-8s context %5d |", kernels.name, model.name, preset.name, context);
        for (const int threads : {1, 2}) {
          const double us = bench.decode(threads);
          std::printf(" decode %d thr %7.1f us %5.1f GB/s |", threads, us, bytes / us / 1e3);
        }
        for (const int threads : {1, 2}) {
          const double us = bench.prefill(threads, task_tokens);
          std::printf(" prefill 128 %d thr %8.1f us %6.1f GFLOPS |", threads, us, bench.prefill_flops() / us / 1e3);
        }
        if (bench.sealed_parts) std::printf(" seal %6.2f us a part", bench.seal_seconds * 1e6 / bench.sealed_parts);
        std::printf("\n");
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace
}  // namespace edge

int main(int argc, char **argv) {
  std::printf("a layer; %lld MiB of K and V in turn; read bandwidth %.1f GB/s (1 thread), %.1f (2)\n",
              static_cast<long long>(edge::COLD_BYTES >> 20), edge::read_bandwidth(1), edge::read_bandwidth(2));
  for (const edge::AttentionKernels &kernels : edge::attention_kernels()) {
    const bool plain = std::strcmp(kernels.name, "plain") == 0;
    if (argc > 1 ? std::strcmp(argv[1], kernels.name) == 0 : !plain) {
      edge::run(kernels, argc > 2 ? std::atoi(argv[2]) : 32, argc > 3 ? argv[3] : "", argc > 4 ? std::atoi(argv[4]) : 0);
    }
  }
}
