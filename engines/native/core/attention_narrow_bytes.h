// Few rows against sealed pages of at most 4 bits, as products of bytes: four where pairs of int16 make two. Include it behind
// `ByteSums`, `store_bytes` and `PackedPairs::take_bytes` (lanes_avx2.h).
//
// Sums of 16 bits hold what eight products add: 8 * 2 * 15 * 127 = 30480 either way for K, 8 * 2 * 15 * 255 = 61200 for V,
// which count from -30600. Eight are 32 channels or the 32 tokens of a page.
#pragma once
#include "attention_narrow_sealed.h"

namespace edge {
namespace {

constexpr int BYTE_ROWS = 4;  // more rows go in two halves: their sums fill the registers
constexpr int16_t HALF_OF_MOST = 8 * 15 * 255;
static_assert(2 * 8 * 15 * BYTE_QUERY_STEPS <= 32767 && 15 * BYTE_WEIGHT_STEPS * 8 == HALF_OF_MOST && PAGE_TOKENS == 4 * 8);

// sums(row, token, sum) of ROWS folded queries [row][D], in the order of store_bytes, and a page of int4 K.
template <int ROWS, class Sums>
__attribute__((noinline)) void multiply_byte_keys(const Sealed &keys, int dim, const int8_t *queries, Ahead &ahead,
                                                  const Sums &sums) {
  for (int token = 0; token < PAGE_TOKENS; token += 16) {
    Ints found[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) found[r] = Ints::zero();
    const uint32_t *from = keys.words + token;
    for (int d = 0; d < dim;) {
      ByteSums part[ROWS];
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; ++r) part[r] = ByteSums::all(0);
      for (const int end = d + 32 < dim ? d + 32 : dim; d < end; d += 8, from += PAGE_TOKENS) {
        ahead.fetch(1);
        PackedPairs packed = PackedPairs::load(from);
#pragma GCC unroll 2
        for (int four = 0; four < 2; ++four) {
          const Ints values = packed.template take_bytes<4>();
#pragma GCC unroll 4
          for (int r = 0; r < ROWS; ++r) part[r].add_by_signed(values, queries + r * dim + d + 4 * four);
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; ++r) found[r] = part[r].added_to(found[r]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) sums(r, token, found[r]);
  }
}

// outputs(row, channel, sum) of ROWS rows of weights [row][128], in the order of store_bytes, and 16 channels of V from d on.
template <int ROWS, int BITS, class Outputs>
__attribute__((noinline)) void multiply_byte_values(const Part *parts, const Segment &segment, int dim, int d,
                                                    const int8_t *weights, Ahead &ahead, const Outputs &outputs) {
  constexpr int COUNT = 32 / BITS;  // tokens a word
  Ints found[ROWS];
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) found[r] = Ints::all((segment.end - segment.begin) * 2 * HALF_OF_MOST);
  for (int page = segment.begin; page < segment.end; ++page) {
    const uint32_t *from = Sealed(parts[page], 1, dim).words + d;
    const int8_t *at = weights + page * PAGE_TOKENS;
    ByteSums part[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) part[r] = ByteSums::all(-HALF_OF_MOST);
#pragma GCC unroll 4
    for (int token = 0; token < PAGE_TOKENS; token += COUNT, from += dim) {
      ahead.fetch(1);
      if (page + 1 == segment.end) ahead.fetch_near(1);
      PackedPairs packed = PackedPairs::load(from);
#pragma GCC unroll 4
      for (int four = 0; four < COUNT; four += 4) {
        const Ints values = packed.template take_bytes<BITS>();
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; ++r) part[r].add_by_unsigned(values, at + r * BLOCK_TOKENS + token + four);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) found[r] = part[r].added_to(found[r]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) outputs(r, d, found[r]);
}

// As WordProducts.
struct ByteProducts {
  using Integer = int8_t;

  template <int BITS>
  static void store(Lanes steps, int8_t *to) {
    store_bytes<BITS>(steps, to);
  }
  template <int ROWS, int BITS, class Sums>
  static void multiply_keys(const Sealed &keys, int dim, const int8_t *queries, Ahead &ahead, const Sums &sums) {
    static_assert(BITS == 4);
    constexpr int FIRST = ROWS <= BYTE_ROWS ? ROWS : ROWS / 2, REST = ROWS - FIRST;
    multiply_byte_keys<FIRST>(keys, dim, queries, ahead, sums);
    if constexpr (REST > 0) {
      const auto rest = [&](int r, int token, Ints sum) { sums(FIRST + r, token, sum); };
      multiply_byte_keys<REST>(keys, dim, queries + FIRST * dim, ahead, rest);
    }
  }
  template <int ROWS>
  static constexpr int channels() {
    return 1;
  }
  template <int ROWS, int CHANNELS, int BITS, class Outputs>
  static void multiply_values(const Part *parts, const Segment &segment, int dim, int d, const int8_t *weights, Ahead &ahead,
                              const Outputs &outputs) {
    static_assert(CHANNELS == 1 && BITS <= 4);
    constexpr int FIRST = ROWS <= BYTE_ROWS ? ROWS : ROWS / 2, REST = ROWS - FIRST;
    multiply_byte_values<FIRST, BITS>(parts, segment, dim, d, weights, ahead, outputs);
    if constexpr (REST > 0) {
      const auto rest = [&](int r, int channel, Ints sum) { outputs(FIRST + r, channel, sum); };
      multiply_byte_values<REST, BITS>(parts, segment, dim, d, weights + FIRST * BLOCK_TOKENS, ahead, rest);
    }
  }
};

}  // namespace
}  // namespace edge
