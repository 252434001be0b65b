// Few rows against sealed pages: words to pairs of integers and into sums, nothing unpacked to memory.
#pragma once
#include "attention_ahead.h"
#include "attention_sealed.h"

namespace edge {
namespace {

// sums(row, token, sum) of ROWS folded queries [row][D / 2 pairs] and a page of K.
template <int ROWS, int BITS, class Sums>
__attribute__((noinline)) void multiply_sealed_keys(const Sealed &keys, int dim, const int32_t *queries, Ahead &ahead,
                                                    const Sums &sums) {
  constexpr int PAIRS = Bits<BITS>::pairs;
  for (int token = 0; token < PAGE_TOKENS; token += 16 * NARROW_TOKENS) {
    Ints found[ROWS][NARROW_TOKENS];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < NARROW_TOKENS; ++i) found[r][i] = Ints::zero();
    }
    const uint32_t *from = keys.words + token;
    for (int pair = 0; pair < dim / 2; pair += PAIRS, from += PAGE_TOKENS) {
      ahead.fetch(NARROW_TOKENS);
      PackedPairs packed[NARROW_TOKENS];
#pragma GCC unroll 4
      for (int i = 0; i < NARROW_TOKENS; ++i) packed[i] = PackedPairs::load(from + 16 * i);
#pragma GCC unroll 8
      for (int at = 0; at < PAIRS; ++at) {
#pragma GCC unroll 4
        for (int i = 0; i < NARROW_TOKENS; ++i) {
          const WordPairs both = packed[i].template take<BITS>();
#pragma GCC unroll 8
          for (int r = 0; r < ROWS; ++r) {
            found[r][i] = dot_pairs(found[r][i], both, WordPairs::all(queries[r * dim / 2 + pair + at]));
            keep_order(found[r][i]);
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < NARROW_TOKENS; ++i) sums(r, token + 16 * i, found[r][i]);
    }
  }
}

// outputs(row, channel, sum) of ROWS rows of weights [row][64 pairs of tokens] and CHANNELS `Ints` of V of the pages [begin,
// end), from channel d on.
template <int ROWS, int CHANNELS, int BITS, class Outputs>
__attribute__((noinline)) void multiply_sealed_values(const Part *parts, const Segment &segment, int dim, int d,
                                                      const int32_t *weights, Ahead &ahead, const Outputs &outputs) {
  constexpr int PAIRS = Bits<BITS>::pairs;
  Ints found[ROWS][CHANNELS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < CHANNELS; ++i) found[r][i] = Ints::zero();
  }
  for (int page = segment.begin; page < segment.end; ++page) {
    const uint32_t *from = Sealed(parts[page], 1, dim).words + d;
    const int32_t *pairs = weights + page * PAGE_TOKENS / 2;
    for (int pair = 0; pair < PAGE_TOKENS / 2; pair += PAIRS, from += dim) {
      ahead.fetch(CHANNELS);
      if (page + 1 == segment.end) ahead.fetch_near(CHANNELS);
      PackedPairs packed[CHANNELS];
#pragma GCC unroll 4
      for (int i = 0; i < CHANNELS; ++i) packed[i] = PackedPairs::load(from + 16 * i);
#pragma GCC unroll 8
      for (int at = 0; at < PAIRS; ++at) {
#pragma GCC unroll 4
        for (int i = 0; i < CHANNELS; ++i) {
          const WordPairs both = packed[i].template take<BITS>();
#pragma GCC unroll 8
          for (int r = 0; r < ROWS; ++r) {
            found[r][i] = dot_pairs(found[r][i], both, WordPairs::all(pairs[r * BLOCK_TOKENS / 2 + pair + at]));
            keep_order(found[r][i]);
          }
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < CHANNELS; ++i) outputs(r, d + 16 * i, found[r][i]);
  }
}

// Products of a sealed page's values as pairs of int16.
struct WordProducts {
  using Integer = int16_t;  // of folded queries and of weights

  // 16 integers of a row, from in_steps.
  template <int BITS>
  static void store(Lanes steps, int16_t *to) {
    store_words(steps, to);
  }
  template <int ROWS, int BITS, class Sums>
  static void multiply_keys(const Sealed &keys, int dim, const int16_t *queries, Ahead &ahead, const Sums &sums) {
    multiply_sealed_keys<ROWS, BITS>(keys, dim, reinterpret_cast<const int32_t *>(queries), ahead, sums);
  }
  // How many times 16 channels go at a time.
  template <int ROWS>
  static constexpr int channels() {
    return ROWS <= NARROW_SEALED_ROWS || NARROW_CHANNELS == 1 ? NARROW_CHANNELS : NARROW_CHANNELS / 2;
  }
  template <int ROWS, int CHANNELS, int BITS, class Outputs>
  static void multiply_values(const Part *parts, const Segment &segment, int dim, int d, const int16_t *weights, Ahead &ahead,
                              const Outputs &outputs) {
    const int32_t *pairs = reinterpret_cast<const int32_t *>(weights);
    multiply_sealed_values<ROWS, CHANNELS, BITS>(parts, segment, dim, d, pairs, ahead, outputs);
  }
};

}  // namespace
}  // namespace edge
