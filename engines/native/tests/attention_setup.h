// Sequences with their pages in a pool, for the attention test and bench. Pages lie in random order, memory that was never
// written is NaN, and behind a window the table holds EMPTY, so that whoever follows such a word leaves the pool.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "attention.h"
#include "expect.h"
#include "pick.h"
#include "tables.h"

namespace edge {

struct AttentionKernels {
  const char *name;
  void (*move)(const MoveParams &);
  void (*rotary)(const RotaryParams &);
  void (*attend)(const AttendParams &);
  void (*merge)(const MergeParams &);
  void (*score_pages)(const PageScoreParams &);
  void (*rank)(const RankParams &);
  void (*weigh_pages)(const MassParams &);
};

inline std::vector<AttentionKernels> attention_kernels() {
  std::vector<AttentionKernels> found = {
      {"plain", plain::move, plain::rotary, plain::attend, plain::merge, plain::score_pages, plain::rank, plain::weigh_pages}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    found.push_back(
        {"avx2", avx2::move, avx2::rotary, avx2::attend, avx2::merge, avx2::score_pages, avx2::rank, avx2::weigh_pages});
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni")) {
    found.push_back({"avx512vnni", avx512vnni::move, avx512vnni::rotary, avx512vnni::attend, avx512vnni::merge,
                     avx512vnni::score_pages, avx512vnni::rank, avx512vnni::weigh_pages});
  }
#elif defined(__aarch64__)
  found.push_back(
      {"neon", neon::move, neon::rotary, neon::attend, neon::merge, neon::score_pages, neon::rank, neon::weigh_pages});
#endif
  return found;
}

// The last line of a test of these sets; its exit code.
inline int summary(const char *what, int cases, uint32_t seed, const std::vector<AttentionKernels> &sets) {
  std::printf("%s: %d cases, seed %u, sets", what, cases, seed);
  for (const AttentionKernels &kernels : sets) std::printf(" %s", kernels.name);
  std::printf(": %s (%d failures)\n", failures ? "FAILED" : "ok", failures);
  return failures != 0;
}

struct Shape {
  int heads, kv_heads, head_dim, window;
  float soft_cap;
  bool normed;
  int layers;
  int group() const { return heads / kv_heads; }
  int64_t width() const { return int64_t(heads + 2 * kv_heads) * head_dim; }
  int64_t layer_bytes() const { return int64_t(kv_heads) * head_dim * PAGE_TOKENS * 2; }
};

// What one kv head's part holds at (token, channel), by the words of the contract and not by the code under test.
struct Kept {
  double minimum, scale;
  int code;
  double value() const { return minimum + scale * code; }
};
inline Kept kept_at(const uint8_t *part, int side, int format, int dim, int token, int channel) {
  const auto half = [part](int64_t at) {
    uint16_t bits;
    std::memcpy(&bits, part + at, 2);
    return double(half_to_float(bits));
  };
  if (format == PageFormat::fp16) return {half(2 * (side == 0 ? channel * 32 + token : token * dim + channel)), 0.0, 0};
  const int bits = format == PageFormat::int8 ? 8 : format == PageFormat::int4 ? 4 : 2, count = 32 / bits;
  const int group = format == PageFormat::int2 ? 32 : 64, index = side == 0 ? channel : token;
  const int64_t word_at = side == 0 ? index / count * 32 + token : index / count * dim + channel;
  const int64_t scales_at = int64_t(dim) * bits * 4, scales = side == 0 ? dim : (dim + group - 1) / group * 32;
  const int64_t scale = side == 0 ? channel : channel / group * 32 + token;
  uint32_t word;
  std::memcpy(&word, part + word_at * 4, 4);
  const int value = int(word >> (index % count % 2 * 16 + index % count / 2 * bits)) & ((1 << bits) - 1);
  return {half(scales_at + (scales + scale) * 2), half(scales_at + scale * 2), value};
}

inline double stored(const uint8_t *part, int side, int format, int dim, int token, int channel) {
  return kept_at(part, side, format, dim, token, channel).value();
}

// Rows 0..tokens-1 of every sequence, packed. `x` is qkv as the projection left it.
class Setup {
 public:
  Setup(const Shape &shape, const std::vector<int> &lengths, uint32_t seed)
      : shape(shape), random(seed), max_pages(0), tokens(0) {
    for (const int length : lengths) {
      first_row.push_back(tokens);
      tokens += length;
      max_pages = std::max(max_pages, (length + PAGE_TOKENS - 1) / PAGE_TOKENS + 1);
    }
    for (size_t seq = 0; seq < lengths.size(); ++seq) {
      for (int position = 0; position < lengths[seq]; ++position) {
        row_seq.push_back(int(seq));
        row_pos.push_back(position);
      }
    }
    x.resize(tokens * shape.width());
    fill(x, 1.0f);
    cosines.resize(int64_t(tokens) * shape.head_dim / 2);
    sines.resize(cosines.size());
    for (size_t i = 0; i < cosines.size(); ++i) {
      const double angle =
          row_pos[i / (shape.head_dim / 2)] * std::pow(1e-4, 2.0 * (i % (shape.head_dim / 2)) / shape.head_dim);
      cosines[i] = float(std::cos(angle));
      sines[i] = float(std::sin(angle));
    }
    q_norm.resize(shape.head_dim);
    k_norm.resize(shape.head_dim);
    fill(q_norm, 2.0f);
    fill(k_norm, 2.0f);
    place_pages(lengths);
  }

  RotaryParams rotary(std::vector<uint8_t> &memory, std::vector<float> &qkv, int layer) const {
    RotaryParams p{};
    p.pages = pages(memory, layer);
    p.qkv = qkv.data();
    p.qkv_stride = shape.width();
    p.queries = qkv.data();
    p.queries_stride = shape.width();
    p.row_seq = row_seq.data();
    p.row_pos = row_pos.data();
    p.cosines = cosines.data();
    p.sines = sines.data();
    p.q_norm = shape.normed ? q_norm.data() : nullptr;
    p.k_norm = shape.normed ? k_norm.data() : nullptr;
    p.epsilon = 1e-5f;
    p.scale = 1.0f / std::sqrt(float(shape.head_dim));
    p.row_end = tokens;
    p.kv_head_end = shape.kv_heads;
    p.append = 1;
    return p;
  }

  // Positions [begin, end) of a sequence over all blocks, written to `out` [T][Hq * D].
  AttendParams attend(std::vector<uint8_t> &memory, const std::vector<float> &qkv, std::vector<float> &out, float *scratch,
                      int layer, int seq, int kv_head, int begin, int end) const {
    AttendParams p{};
    p.pages = pages(memory, layer);
    p.qkv = qkv.data();
    p.qkv_stride = shape.width();
    p.out = out.data();
    p.out_stride = int64_t(shape.heads) * shape.head_dim;
    p.row_pos = row_pos.data();
    p.seq = seq;
    p.kv_head = kv_head;
    p.token_begin = first_row[seq] + begin;
    p.token_end = first_row[seq] + end;
    p.window = shape.window;
    p.soft_cap = shape.soft_cap;
    p.block_end = (end + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    p.scratch = scratch;
    return p;
  }

  // Moves a page's K or V to `format`, in extents of its own; the one it leaves becomes NaN.
  void seal(void (*move)(const MoveParams &), std::vector<uint8_t> &memory, int layer, int seq, int page, int side,
            int format) {
    int32_t &word = page_table[(int64_t(seq) * max_pages + page) * 2 + side];
    const int32_t sealed = spare.back() | format << FORMAT_SHIFT;
    spare.pop_back();
    const auto part = [&](int32_t word) {
      return memory.data() + offset_of(word) + layer * shape.kv_heads * part_bytes(side, format_of(word), shape.head_dim);
    };
    move({part(word), part(sealed), side, format_of(word), format, shape.kv_heads, shape.head_dim});
    std::memset(part(word), 0xff, size_t(shape.kv_heads * part_bytes(side, format_of(word), shape.head_dim)));
    word = sealed;
  }

  // Frees what rows from `position` on no longer see: whole pages become EMPTY, slots before the window NaN where the page is
  // fp16.
  void free_behind_window(std::vector<uint8_t> &memory, int layer, int seq, int position) {
    const int oldest = shape.window && position >= shape.window ? position - shape.window + 1 : 0;
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (const int side : {0, 1}) {
        const Part part = part_of(pages(memory, layer), seq, oldest / PAGE_TOKENS, side, head);
        for (int i = 0; part.format == PageFormat::fp16 && i < oldest % PAGE_TOKENS * shape.head_dim; ++i) {
          const int slot = i / shape.head_dim, d = i % shape.head_dim;
          part.halves()[side == 0 ? d * PAGE_TOKENS + slot : slot * shape.head_dim + d] = 0x7e00;
        }
      }
    }
    for (int i = 0; i < oldest / PAGE_TOKENS * 2; ++i) page_table[int64_t(seq) * max_pages * 2 + i] = EMPTY;
  }

  LayerPages pages(std::vector<uint8_t> &memory, int layer) const {
    return {memory.data(), page_table.data(), max_pages, layer, shape.heads, shape.kv_heads, shape.head_dim};
  }

  Shape shape;
  std::mt19937 random;
  int max_pages, tokens;
  int64_t pool_bytes = 0;
  std::vector<int> first_row;                                // of each sequence
  std::vector<int32_t> row_seq, row_pos, page_table, spare;  // spare: offsets of extents that no page has
  std::vector<float> x, cosines, sines, q_norm, k_norm;

 private:
  void fill(std::vector<float> &values, float spread) {
    std::normal_distribution<float> normal(0.0f, spread);
    for (float &value : values) value = normal(random);
  }

  void place_pages(const std::vector<int> &lengths) {
    const int64_t extent = (shape.layers * shape.layer_bytes() + OFFSET_UNIT - 1) / OFFSET_UNIT;
    std::vector<int32_t> words;
    for (const int length : lengths) words.resize(words.size() + (length + PAGE_TOKENS - 1) / PAGE_TOKENS * 4);
    for (size_t i = 0; i < words.size(); ++i) words[i] = int32_t(i * extent);
    std::shuffle(words.begin(), words.end(), random);
    pool_bytes = int64_t(words.size()) * extent * OFFSET_UNIT;
    page_table.assign(lengths.size() * max_pages * 2, EMPTY);
    size_t next = 0;
    for (size_t seq = 0; seq < lengths.size(); ++seq) {
      for (int i = 0; i < (lengths[seq] + PAGE_TOKENS - 1) / PAGE_TOKENS * 2; ++i) {
        page_table[seq * max_pages * 2 + i] = words[next++];
      }
    }
    spare.assign(words.begin() + int64_t(next), words.end());
  }
};

}  // namespace edge
