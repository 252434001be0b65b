// Many rows (prefill) against one block of positions as integers: lanes are rows, so that a row's maximum, sum and factors need
// no walk across a register. Rows go in groups of WIDE_ROWS.
//   WIDE_COUNT: tokens or channels, 4 or 8, by WIDE_REGISTERS `Ints` of rows, one sum a cell.
#pragma once
#include "attention_panels.h"

namespace edge {
namespace {

constexpr int WIDE_ROWS = 16 * WIDE_REGISTERS;
static_assert(WIDE_ROWS <= GROUP_ROWS && (WIDE_COUNT == 4 || WIDE_COUNT == 8), "a group fits its scratch");

// sums[i][row] of WIDE_COUNT numbers by WIDE_ROWS rows: the sum over `steps` of ones[i + step * ones_step] by
// rows[step][WIDE_ROWS]. All loops but that over steps are unrolled, and the sums leave through memory, or GCC 12 moves or
// spills them at half the speed.
__attribute__((noinline)) void multiply_rows(int steps, const int32_t *ones, int64_t ones_step, const int32_t *rows,
                                             int32_t *to) {
  Ints sums[WIDE_COUNT][WIDE_REGISTERS];
#pragma GCC unroll 8
  for (int i = 0; i < WIDE_COUNT; ++i) {
#pragma GCC unroll 2
    for (int r = 0; r < WIDE_REGISTERS; ++r) sums[i][r] = Ints::zero();
  }
  for (int step = 0; step < steps; ++step, ones += ones_step, rows += WIDE_ROWS) {
    WordPairs loaded[WIDE_REGISTERS];
#pragma GCC unroll 2
    for (int r = 0; r < WIDE_REGISTERS; ++r) loaded[r] = WordPairs::load(rows + 16 * r);
#pragma GCC unroll 8
    for (int i = 0; i < WIDE_COUNT; ++i) {
      const auto one = WordPairs::all(ones[i]);
#pragma GCC unroll 2
      for (int r = 0; r < WIDE_REGISTERS; ++r) sums[i][r] = dot_pairs(sums[i][r], one, loaded[r]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < WIDE_COUNT; ++i) {
#pragma GCC unroll 2
    for (int r = 0; r < WIDE_REGISTERS; ++r) sums[i][r].store(to + i * WIDE_ROWS + 16 * r);
  }
}

// One group of rows of a pass against blocks of fp16 pages; what the blocks gave so far lies in the scratch, lane by lane.
class Wide {
 public:
  // The group of pass rows [first, first + rows), rows [row_begin, row_begin + rows) of the task. Lanes behind them repeat the
  // last row.
  Wide(const AttendParams &p, const Scratch &scratch, int first, int row_begin, int rows)
      : p_(p),
        scratch_(scratch),
        dim_(p.pages.head_dim),
        row_begin_(row_begin),
        rows_(rows),
        queries_(scratch.queries + int64_t(first) * dim_ / 2),
        outputs_(scratch.outputs + int64_t(first) * dim_),
        maxima_(scratch.maxima + first),
        totals_(scratch.totals + first),
        factors_(scratch.factors + first),
        positions_(scratch.positions + first) {}

  void begin() const {
    for (int r = 0; r < WIDE_ROWS; ++r) {
      const int task_row = row_begin_ + (r < rows_ ? r : rows_ - 1);
      int32_t row[MAX_HEAD_DIM / 2];
      positions_[r] = position_of_row(p_, task_row);
      factors_[r] = fill_query(query_of_row(p_, task_row), dim_, p_.soft_cap, reinterpret_cast<int16_t *>(row));
      for (int i = 0; i < dim_ / 2; ++i) queries_[i * WIDE_ROWS + r] = row[i];
      maxima_[r] = NO_MAXIMUM;
      totals_[r] = 0.0f;
    }
    for (int i = 0; i < dim_ * WIDE_ROWS; i += 16) Lanes(0.0f).store(outputs_ + i);
  }

  // The block's integers are in the scratch. `partials`: where the block's go, those of the first row; null: they are merged.
  void run(int block, float *partials) const {
    const Range span = visible(positions_[0], positions_[rows_ - 1], p_.window, block);
    if (span.empty()) {
      for (int r = 0; partials && r < rows_; ++r) partials[r * (2 + dim_)] = NO_MAXIMUM;
      return;
    }
    const Range around{span.begin / 8 * 8, (span.end + 7) / 8 * 8};
    all_see(block, around) ? run_around<false>(block, around, partials) : run_around<true>(block, around, partials);
  }

  void finish() const {
    for (int first = 0; first < rows_; first += 16) {
      const Lanes total = Lanes::load(totals_ + first);
      const int count = rows_ - first < 16 ? rows_ - first : 16;
      float *rows[16];
      for (int r = 0; r < count; ++r) rows[r] = output_of_row(p_, row_begin_ + first + r);
      for (int d = 0; d < dim_; ++d) {
        float outputs[16];
        final_output(Lanes::load(outputs_ + d * WIDE_ROWS + first), total).store(outputs);
        for (int r = 0; r < count; ++r) rows[r][d] = outputs[r];
      }
    }
  }

 protected:
  Range seen(int r, int block) const { return visible(positions_[r], positions_[r], p_.window, block); }

  // What the first row sees at the end and the last one at the beginning, all of them see.
  bool all_see(int block, Range around) const {
    const Range of_first = seen(0, block), of_last = seen(rows_ - 1, block);
    return !of_first.empty() && !of_last.empty() && of_last.begin <= around.begin && of_first.end >= around.end;
  }

  // Which rows see a token. MASKED: not every row sees all of a range.
  template <bool MASKED>
  struct Mask {
    Lanes begin[WIDE_REGISTERS], end[WIDE_REGISTERS];
    Lanes operator()(int r, int token, Lanes x, Lanes other) const {
      if constexpr (!MASKED) return x;
      const Lanes index{float(token)};
      return select_less(index, begin[r], other, select_less(index, end[r], x, other));
    }
  };
  template <bool MASKED>
  Mask<MASKED> mask_of(int block) const {
    Mask<MASKED> mask;
    for (int r = 0; MASKED && r < WIDE_REGISTERS; ++r) {
      float begins[16], ends[16];
      for (int i = 0; i < 16; ++i) {
        const Range range = seen(16 * r + i, block);
        begins[i] = float(range.begin);
        ends[i] = float(range.end);
      }
      mask.begin[r] = Lanes::load(begins);
      mask.end[r] = Lanes::load(ends);
    }
    return mask;
  }

  template <bool MASKED>
  void run_around(int block, Range around, float *partials) const {
    const Mask<MASKED> mask = mask_of<MASKED>(block);
    Lanes factor[WIDE_REGISTERS], maximum[WIDE_REGISTERS], total[WIDE_REGISTERS], largest[WIDE_REGISTERS];
    for (int r = 0; r < WIDE_REGISTERS; ++r) {
      factor[r] = Lanes::load(factors_ + 16 * r);
      maximum[r] = Lanes(NO_MAXIMUM);
    }
    for (int token = around.begin; token < around.end; token += WIDE_COUNT) {
      alignas(64) int32_t sums[WIDE_COUNT * WIDE_ROWS];
      multiply_rows(dim_ / 2, scratch_.keys + token, BLOCK_TOKENS, queries_, sums);
      for (int i = 0; i < WIDE_COUNT; ++i) {
        const Lanes scale(scratch_.key_scales[token + i]);
        for (int r = 0; r < WIDE_REGISTERS; ++r) {
          const Lanes sum = to_float(Ints::load(sums + i * WIDE_ROWS + 16 * r));
          const Lanes score = score_of(sum, scale, factor[r], p_.soft_cap);
          score.store(scratch_.scores + (token + i) * WIDE_ROWS + 16 * r);
          maximum[r] = larger(maximum[r], mask(r, token + i, score, Lanes(NO_MAXIMUM)));
        }
      }
    }
    for (int r = 0; r < WIDE_REGISTERS; ++r) weigh(r, around, mask, maximum[r], &total[r], &largest[r]);
    if (partials) {
      write_partials(around, maximum, total, largest, partials);
      return;
    }
    Lanes old_factor[WIDE_REGISTERS], block_factor[WIDE_REGISTERS];
    for (int r = 0; r < WIDE_REGISTERS; ++r) {
      const Lanes old = Lanes::load(maxima_ + 16 * r), both = larger(old, maximum[r]);
      old_factor[r] = power_of<0>(old - both);
      block_factor[r] = power_of<0>(maximum[r] - both);
      both.store(maxima_ + 16 * r);
      merged(Lanes::load(totals_ + 16 * r), old_factor[r], total[r], block_factor[r]).store(totals_ + 16 * r);
    }
    for_channels(around, 0, dim_, [&](int d, int r, Lanes sum) {
      float *row = outputs_ + d * WIDE_ROWS + 16 * r;
      merged(Lanes::load(row), old_factor[r], output_of_block(sum, largest[r]), block_factor[r]).store(row);
    });
  }

  // Scores of 16 rows to integer weights, pairs of tokens.
  template <bool MASKED>
  void weigh(int r, Range around, const Mask<MASKED> &mask, Lanes maximum, Lanes *total, Lanes *largest) const {
    float *scores = scratch_.scores + 16 * r;
    Lanes sum(0.0f), most(0.0f);
    for (int token = around.begin; token < around.end; ++token) {
      float *at = scores + token * WIDE_ROWS;
      const Lanes power = power_of<WEIGHT_POWER>(Lanes::load(at) - maximum);
      const Lanes weight = mask(r, token, power * Lanes(scratch_.value_scales[token]), Lanes(0.0f));
      weight.store(at);
      sum = sum + mask(r, token, rounded(power), Lanes(0.0f));
      most = larger(most, weight);
    }
    const Lanes steps = steps_of(most, WEIGHT_STEPS, SMALLEST);
    for (int token = around.begin; token < around.end; token += 2) {
      const float *at = scores + token * WIDE_ROWS;
      pairs_of(in_steps(Lanes::load(at), steps), in_steps(Lanes::load(at + WIDE_ROWS), steps))
          .store(scratch_.weights + token / 2 * WIDE_ROWS + 16 * r);
    }
    *total = sum;
    *largest = most;
  }

  template <class Done>  // done(channel, register of rows, sum of weights by V), of channels [first, end)
  void for_channels(Range around, int first, int end, Done done) const {
    const int pair = around.begin / 2;
    for (int d = first; d < end; d += WIDE_COUNT) {
      alignas(64) int32_t sums[WIDE_COUNT * WIDE_ROWS];
      multiply_rows((around.end - around.begin) / 2, scratch_.values + pair * dim_ + d, dim_,
                    scratch_.weights + pair * WIDE_ROWS, sums);
      for (int i = 0; i < WIDE_COUNT; ++i) {
        for (int r = 0; r < WIDE_REGISTERS; ++r) done(d + i, r, to_float(Ints::load(sums + i * WIDE_ROWS + 16 * r)));
      }
    }
  }

  void write_partials(Range around, const Lanes *maximum, const Lanes *total, const Lanes *largest, float *partials) const {
    const auto spread = [&](Lanes x, int r, int at) {
      float numbers[16];
      x.store(numbers);
      for (int i = 0; i < 16 && 16 * r + i < rows_; ++i) partials[(16 * r + i) * (2 + dim_) + at] = numbers[i];
    };
    for (int r = 0; r < WIDE_REGISTERS; ++r) {
      spread(maximum[r], r, 0);
      spread(total[r], r, 1);
    }
    for_channels(around, 0, dim_, [&](int d, int r, Lanes sum) { spread(output_of_block(sum, largest[r]), r, 2 + d); });
  }

  const AttendParams &p_;
  const Scratch &scratch_;
  const int dim_, row_begin_, rows_;
  int32_t *const queries_;  // [D / 2][WIDE_ROWS]
  float *const outputs_;    // [D][WIDE_ROWS]
  float *const maxima_, *const totals_, *const factors_;
  int32_t *const positions_;
};

}  // namespace
}  // namespace edge
