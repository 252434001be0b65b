// fp16 pages and fp32 queries as integers and their scales, for any SIMD instruction set. Include it behind `Lanes`, `Ints` and
// `WordPairs` (lanes_*.h) and
//   constexpr int WIDE_COUNT, WIDE_REGISTERS;                    // see attention_wide.h
//   constexpr int NARROW_ROWS, NARROW_TOKENS, NARROW_CHANNELS;   // see attention_narrow.h
//   // The largest |x| of every column of fp16 [D][32], of every row of [32][D]; D a multiple of 16. Infinities and NaNs make
//   0. void largest_of_columns(const uint16_t *page, int dim, float *x32); void largest_of_rows(const uint16_t *page, int dim,
//   float *x32);
#pragma once
#include "attention.h"

namespace edge {
namespace {

constexpr int LINE = 64;  // bytes of a cache line

inline void prefetch(const uint8_t *line) { __builtin_prefetch(line, 0, 2); }  // into the second-level cache
inline void prefetch_near(const uint8_t *line) { __builtin_prefetch(line, 0, 3); }

// Scales of a page's tokens from the largest magnitude of each, and the factors that turn their numbers into steps.
inline void store_scales(const float *largest, float steps, float *scales, float *factors) {
  for (int i = 0; i < PAGE_TOKENS; i += 16) {
    const Lanes most = Lanes::load(largest + i);
    (most * Lanes(1.0f / steps)).store(scales + i);
    steps_of(most, steps, SMALLEST_HALF).store(factors + i);
  }
}
inline void scale_keys(const uint16_t *page, int dim, float *scales, float *factors) {
  float largest[PAGE_TOKENS];
  largest_of_columns(page, dim, largest);
  store_scales(largest, KEY_STEPS, scales, factors);
}
inline void scale_values(const uint16_t *page, int dim, float *scales, float *factors) {
  float largest[PAGE_TOKENS];
  largest_of_rows(page, dim, largest);
  store_scales(largest, VALUE_STEPS, scales, factors);
}

// Two channels of 16 tokens of K, or two tokens of 16 channels of V.
inline WordPairs steps_of_pair(const uint16_t *low, Lanes low_factor, const uint16_t *high, Lanes high_factor) {
  return pairs_of(in_steps(Lanes::load_half(low), low_factor), in_steps(Lanes::load_half(high), high_factor));
}

// A page of K [D][32 tokens] to `panel`, pairs of channels [D / 2][128 tokens].
inline void fill_keys(const uint16_t *page, int dim, int32_t *panel, float *scales) {
  float factors[PAGE_TOKENS];
  scale_keys(page, dim, scales, factors);
  const Lanes factor[2] = {Lanes::load(factors), Lanes::load(factors + 16)};
  for (int d = 0; d < dim; d += 2, page += 2 * PAGE_TOKENS, panel += BLOCK_TOKENS) {
    for (int i = 0; i < 2; ++i) {
      steps_of_pair(page + 16 * i, factor[i], page + PAGE_TOKENS + 16 * i, factor[i]).store(panel + 16 * i);
    }
  }
}

// A page of V [32 tokens][D] to `panel`, pairs of tokens [16][D].
inline void fill_values(const uint16_t *page, int dim, int32_t *panel, float *scales) {
  float factors[PAGE_TOKENS];
  scale_values(page, dim, scales, factors);
  for (int token = 0; token < PAGE_TOKENS; token += 2, page += 2 * dim, panel += dim) {
    const Lanes low(factors[token]), high(factors[token + 1]);
    for (int d = 0; d < dim; d += 16) steps_of_pair(page + d, low, page + dim + d, high).store(panel + d);
  }
}

// The K (side 0) or V (side 1) of a block's page, 0 to 3.
inline const uint16_t *page_of(const AttendParams &p, int block, int page, int side) {  // of an fp16 page
  return page_of(p.pages, p.seq, block * BLOCK_PAGES + page, side, p.kv_head);
}
inline Part part_of(const AttendParams &p, int block, int page, int side) {
  return part_of(p.pages, p.seq, block * BLOCK_PAGES + page, side, p.kv_head);
}

// K and V of the pages around `span`, or of a share of each.
inline void prefetch_block(const AttendParams &p, int block, Range span, int share, int shares) {
  const uint8_t *pages[2 * BLOCK_PAGES];
  int lines[2 * BLOCK_PAGES], count = 0, most = 0;
  for (int page = span.begin / PAGE_TOKENS; page * PAGE_TOKENS < span.end; ++page) {
    for (int side = 0; side < 2; ++side) {
      const Part part = part_of(p, block, page, side);
      const int all = int(part_bytes(side, part.format, p.pages.head_dim)) / LINE, begin = all * share / shares;
      pages[count] = part.bytes + begin * LINE;
      lines[count] = all * (share + 1) / shares - begin;
      most = lines[count] > most ? lines[count] : most;
      ++count;
    }
  }
  for (int line = 0; line < most; ++line) {
    for (int page = 0; page < count; ++page) {
      if (line < lines[page]) prefetch(pages[page] + line * LINE);
    }
  }
}

// One row of q as integers to `words` [D]; returns its score_factor.
inline float fill_query(const float *query, int dim, float soft_cap, int16_t *words) {
  uint32_t bits = 0;
  for (int d = 0; d < dim; d += 32) {
    const Lanes x = Lanes::load(query + d), y = d + 16 < dim ? Lanes::load(query + d + 16) : x;
    const uint32_t found = largest_magnitude_bits(x, y);
    bits = found > bits ? found : bits;
  }
  const float largest = query_magnitude(bits);
  const Lanes factor(steps_of(largest, QUERY_STEPS, SMALLEST));
  for (int d = 0; d < dim; d += 16) store_words(in_steps(Lanes::load(query + d), factor), words + d);
  return score_factor(largest * (1.0f / QUERY_STEPS), soft_cap);
}

}  // namespace
}  // namespace edge
