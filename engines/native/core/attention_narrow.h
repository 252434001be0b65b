// Few rows (a decode step) against one block of positions, straight from its fp16 pages: lanes are tokens, then channels.
//   NARROW_ROWS: the most rows;  NARROW_TOKENS, NARROW_CHANNELS: how many `Ints` of tokens and of channels are summed at a
//   time.
#pragma once
#include "attention_ahead.h"

namespace edge {
namespace {

// Lanes of x whose index, counted from `first`, is in the range; `other` in the rest.
inline Lanes within(Lanes x, int first, Range range, Lanes other) {
  if (range.begin <= first && first + 16 <= range.end) return x;
  static const float INDEX[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Lanes index = Lanes::load(INDEX) + Lanes(float(first));
  x = select_less(index, Lanes(float(range.end)), x, other);
  return select_less(index, Lanes(float(range.begin)), other, x);
}

// sums[row][token] of ROWS queries [row][D / 2 pairs] and a page of K. Inlined, as GCC does by itself where it has one caller:
// apart it took 5 % longer.
template <int ROWS>
__attribute__((always_inline)) inline void multiply_keys(const uint16_t *page, int dim, const float *factors,
                                                         const int32_t *queries, Soon soon, Ahead &ahead, int32_t *sums) {
  int line = 0;
  for (int token = 0; token < PAGE_TOKENS; token += 16 * NARROW_TOKENS) {
    Ints found[ROWS][NARROW_TOKENS];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < NARROW_TOKENS; ++i) found[r][i] = Ints::zero();
    }
    Lanes factor[NARROW_TOKENS];
#pragma GCC unroll 4
    for (int i = 0; i < NARROW_TOKENS; ++i) factor[i] = Lanes::load(factors + token + 16 * i);
    const uint16_t *from = page + token;
    for (int pair = 0; pair < dim / 2; ++pair, from += 2 * PAGE_TOKENS) {
      ahead.fetch(1);
      for (int i = 0; i < NARROW_TOKENS; ++i) soon.fetch(line++);
#pragma GCC unroll 4
      for (int i = 0; i < NARROW_TOKENS; ++i) {
        const WordPairs keys = steps_of_pair(from + 16 * i, factor[i], from + PAGE_TOKENS + 16 * i, factor[i]);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) found[r][i] = dot_pairs(found[r][i], keys, WordPairs::all(queries[r * dim / 2 + pair]));
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < NARROW_TOKENS; ++i) found[r][i].store(sums + r * BLOCK_TOKENS + token + 16 * i);
    }
  }
}

// The pages of V of a block.
struct ValuePages {
  const uint16_t *pages[BLOCK_PAGES];
  float factors[BLOCK_TOKENS];
  int begin, end;  // pages
};

// outputs[row][channel]: sums of ROWS rows of weights [row][64 pairs of tokens] and CHANNELS `Ints` of V, from channel d on.
template <int ROWS, int CHANNELS, class Outputs>
__attribute__((always_inline)) inline void multiply_values(const ValuePages &values, int dim, int d, const int32_t *weights,
                                                           Ahead &ahead, Outputs outputs) {
  Ints found[ROWS][CHANNELS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < CHANNELS; ++i) found[r][i] = Ints::zero();
  }
  for (int page = values.begin; page < values.end; ++page) {
    const uint16_t *from = values.pages[page] + d;
    const float *factors = values.factors + page * PAGE_TOKENS;
    const int32_t *pairs = weights + page * PAGE_TOKENS / 2;
    for (int pair = 0; pair < PAGE_TOKENS / 2; ++pair, from += 2 * dim) {
      ahead.fetch(CHANNELS);
      if (page + 1 == values.end) ahead.fetch_near(CHANNELS);
      const Lanes low(factors[2 * pair]), high(factors[2 * pair + 1]);
#pragma GCC unroll 4
      for (int i = 0; i < CHANNELS; ++i) {
        const WordPairs both = steps_of_pair(from + 16 * i, low, from + dim + 16 * i, high);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) {
          found[r][i] = dot_pairs(found[r][i], both, WordPairs::all(pairs[r * BLOCK_TOKENS / 2 + pair]));
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

// The rows [row_begin, row_begin + rows) of a task against blocks of fp16 pages; what the blocks gave so far lies in the
// scratch, row by row.
class Narrow {
 public:
  Narrow(const AttendParams &p, const Scratch &scratch, int row_begin, int rows)
      : p_(p), scratch_(scratch), dim_(p.pages.head_dim), row_begin_(row_begin), rows_(rows) {
    for (int r = 0; r < rows_; ++r) {
      int16_t *words = reinterpret_cast<int16_t *>(scratch_.queries + r * dim_ / 2);
      queries_[r] = query_of_row(p_, row_begin_ + r);
      scratch_.factors[r] = fill_query(queries_[r], dim_, p_.soft_cap, words);
      scratch_.maxima[r] = NO_MAXIMUM;
      scratch_.totals[r] = 0.0f;
    }
    for (int i = 0; i < rows_ * dim_; i += 16) Lanes(0.0f).store(scratch_.outputs + i);
  }

  // `partials`: where the block's go, those of the first row; null: they are merged.
  void run(int block, Range span, Range next, float *partials) {
    switch (rows_) {
      case 1: return run_rows<1>(block, span, next, partials);
      case 2: return run_rows<2>(block, span, next, partials);
      case 3: return run_rows<3>(block, span, next, partials);
      case 4: return run_rows<4>(block, span, next, partials);
      case 5: return run_rows<5>(block, span, next, partials);
      case 6: return run_rows<6>(block, span, next, partials);
      case 7: return run_rows<7>(block, span, next, partials);
      default: return run_rows<8>(block, span, next, partials);
    }
  }

  void finish() const {
    for (int r = 0; r < rows_; ++r) {
      const float *row = scratch_.outputs + r * dim_;
      float *out = output_of_row(p_, row_begin_ + r);
      for (int d = 0; d < dim_; d += 16) final_output(Lanes::load(row + d), Lanes(scratch_.totals[r])).store(out + d);
    }
  }

 protected:
  int position(int r) const { return position_of_row(p_, row_begin_ + r); }

  template <int ROWS>
  void run_rows(int block, Range span, Range next, float *partials) {
    static_assert(ROWS <= NARROW_ROWS);
    if (span.empty()) {
      for (int r = 0; partials && r < ROWS; ++r) partials[r * (2 + dim_)] = NO_MAXIMUM;
      return;
    }
    Ahead ahead(p_, block, next);
    ValuePages values;
    values.begin = span.begin / PAGE_TOKENS;
    values.end = (span.end + PAGE_TOKENS - 1) / PAGE_TOKENS;
    int32_t *sums = reinterpret_cast<int32_t *>(scratch_.scores);
    for (int page = values.begin; page < values.end; ++page) {
      const int at = page * PAGE_TOKENS;
      const uint16_t *keys = page_of(p_, block, page, 0);
      float factors[PAGE_TOKENS];
      ahead.fetch(dim_ / 4);
      scale_keys(keys, dim_, scratch_.key_scales + at, factors);
      values.pages[page] = page_of(p_, block, page, 1);
      const Soon soon{bytes_at(page + 1 < values.end ? page_of(p_, block, page + 1, 0) : keys), bytes_at(values.pages[page])};
      multiply_keys<ROWS>(keys, dim_, factors, scratch_.queries, soon, ahead, sums + at);
    }
    for (int page = values.begin; page < values.end; ++page) {
      const int at = page * PAGE_TOKENS;
      ahead.fetch(dim_ / 4);
      scale_values(values.pages[page], dim_, scratch_.value_scales + at, values.factors + at);
    }
    const Range around{values.begin * PAGE_TOKENS, values.end * PAGE_TOKENS};
    float maxima[ROWS], totals[ROWS], largest[ROWS];
    ahead.fetch(dim_ / 4);
    // Two loops, since a row's maximum is a chain of dependent steps: those of several rows overlap.
    for (int r = 0; r < ROWS; ++r) maxima[r] = score(r, around, visible(position(r), position(r), p_.window, block));
    for (int r = 0; r < ROWS; ++r) {
      totals[r] = weigh(r, around, visible(position(r), position(r), p_.window, block), maxima[r], &largest[r]);
    }
    if (partials) {
      for (int r = 0; r < ROWS; ++r) {
        partials[r * (2 + dim_)] = maxima[r];
        partials[r * (2 + dim_) + 1] = totals[r];
      }
      multiply_channels<ROWS>(values, ahead, [&](int r, int d, Ints sum) {
        output_of_block(to_float(sum), Lanes(largest[r])).store(partials + r * (2 + dim_) + 2 + d);
      });
      return;
    }
    float old_factors[ROWS], block_factors[ROWS];
    for (int r = 0; r < ROWS; ++r) {
      const float old = scratch_.maxima[r], both = larger(old, maxima[r]);
      old_factors[r] = power_of<0>(old - both);
      block_factors[r] = power_of<0>(maxima[r] - both);
      scratch_.maxima[r] = both;
      scratch_.totals[r] = merged(scratch_.totals[r], old_factors[r], totals[r], block_factors[r]);
    }
    multiply_channels<ROWS>(values, ahead, [&](int r, int d, Ints sum) {
      float *row = scratch_.outputs + r * dim_ + d;
      const Lanes block = output_of_block(to_float(sum), Lanes(largest[r]));
      merged(Lanes::load(row), Lanes(old_factors[r]), block, Lanes(block_factors[r])).store(row);
    });
  }

  template <int ROWS, class Outputs>
  void multiply_channels(const ValuePages &values, Ahead &ahead, Outputs outputs) const {
    constexpr int CHANNELS = ROWS <= 4 || NARROW_CHANNELS == 1 ? NARROW_CHANNELS : NARROW_CHANNELS / 2;
    int d = 0;
    for (; d + 16 * CHANNELS <= dim_; d += 16 * CHANNELS) {
      multiply_values<ROWS, CHANNELS>(values, dim_, d, scratch_.weights, ahead, outputs);
    }
    for (; d < dim_; d += 16) multiply_values<ROWS, 1>(values, dim_, d, scratch_.weights, ahead, outputs);
  }

  // Sums to scores, in place; returns the largest that the row sees.
  float score(int r, Range around, Range seen) const {
    float *scores = scratch_.scores + r * BLOCK_TOKENS;
    Lanes most(NO_MAXIMUM);
    for (int i = around.begin; i < around.end; i += 16) {
      const Lanes sum = to_float(Ints::load(reinterpret_cast<const int32_t *>(scores + i)));
      const Lanes score = score_of(sum, Lanes::load(scratch_.key_scales + i), Lanes(scratch_.factors[r]), p_.soft_cap);
      score.store(scores + i);
      most = larger(most, within(score, i, seen, Lanes(NO_MAXIMUM)));
    }
    return largest_lane(most);
  }

  // Scores to integer weights, 0 where the row sees nothing; returns the sum of what is not yet multiplied by V's scales.
  float weigh(int r, Range around, Range seen, float maximum, float *largest) const {
    float *scores = scratch_.scores + r * BLOCK_TOKENS;
    Lanes total(0.0f), most(0.0f);
    for (int i = around.begin; i < around.end; i += 16) {
      const Lanes power = power_of<WEIGHT_POWER>(Lanes::load(scores + i) - Lanes(maximum));
      const Lanes weight = within(power * Lanes::load(scratch_.value_scales + i), i, seen, Lanes(0.0f));
      weight.store(scores + i);
      total = total + within(rounded(power), i, seen, Lanes(0.0f));
      most = larger(most, weight);
    }
    *largest = largest_lane(most);
    const Lanes factor(steps_of(*largest, WEIGHT_STEPS, SMALLEST));
    int16_t *weights = reinterpret_cast<int16_t *>(scratch_.weights) + r * BLOCK_TOKENS;
    for (int i = around.begin; i < around.end; i += 16) {
      store_words(in_steps(Lanes::load(scores + i), factor), weights + i);
    }
    return sum_lanes(total);
  }

  const AttendParams &p_;
  const Scratch &scratch_;
  const int dim_, row_begin_, rows_;
  const float *queries_[NARROW_ROWS];
};

}  // namespace
}  // namespace edge
