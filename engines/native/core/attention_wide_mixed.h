// Many rows against a block with sealed pages among its own: the same integers, formulas and merge as attention_wide.h, with
// queries folded with every sealed page's scales and sums a segment of V at a time.
#pragma once
#include "attention_sealed.h"
#include "attention_wide.h"

namespace edge {
namespace {

class MixedWide : public Wide {
 public:
  MixedWide(const AttendParams &p, const Scratch &scratch, int first, int row_begin, int rows)
      : Wide(p, scratch, first, row_begin, rows), raw_(scratch.raw + int64_t(first) * dim_) {}

  // Rows as they are, for folding.
  void begin_sealed() const {
    for (int r = 0; r < WIDE_ROWS; ++r) {
      const float *query = query_of_row(p_, row_begin_ + (r < rows_ ? r : rows_ - 1));
      for (int d = 0; d < dim_; ++d) raw_[d * WIDE_ROWS + r] = query[d];
    }
  }

  void run(int block, float *partials) const {
    const Range span = visible(positions_[0], positions_[rows_ - 1], p_.window, block);
    if (span.empty() || !has_sealed_pages(p_, block, span)) return Wide::run(block, partials);
    const Range around{span.begin / 8 * 8, (span.end + 7) / 8 * 8};
    all_see(block, around) ? run_mixed<false>(block, around, partials) : run_mixed<true>(block, around, partials);
  }

 private:
  template <bool MASKED>
  void run_mixed(int block, Range around, float *partials) const {
    const Mask<MASKED> mask = mask_of<MASKED>(block);
    const BlockParts parts(p_, block, around);
    Lanes maximum[WIDE_REGISTERS], total[WIDE_REGISTERS];
    for (int r = 0; r < WIDE_REGISTERS; ++r) maximum[r] = Lanes(NO_MAXIMUM);
    for (int page = parts.begin; page < parts.end; ++page) {
      const Part keys = parts.keys[page];
      const Range tokens = within_page(around, page);
      keys.format == PageFormat::fp16 ? score_page<false>(keys, tokens, mask, maximum)
                                      : score_page<true>(keys, tokens, mask, maximum);
    }
    Lanes old_factor[WIDE_REGISTERS], block_factor[WIDE_REGISTERS];
    for (int r = 0; r < WIDE_REGISTERS; ++r) {
      raise(r, around, mask, maximum[r], &total[r]);
      if (partials) {
        spread(maximum[r], r, partials);
        spread(total[r], r, partials + 1);
        continue;
      }
      const Lanes old = Lanes::load(maxima_ + 16 * r), both = larger(old, maximum[r]);
      old_factor[r] = power_of<0>(old - both);
      block_factor[r] = power_of<0>(maximum[r] - both);
      both.store(maxima_ + 16 * r);
      merged(Lanes::load(totals_ + 16 * r), old_factor[r], total[r], block_factor[r]).store(totals_ + 16 * r);
    }
    sum_segments(parts, around, [&](int d, int r, Lanes output) {
      if (partials) return spread(output, r, partials + 2 + d);
      float *row = outputs_ + d * WIDE_ROWS + 16 * r;
      merged(Lanes::load(row), old_factor[r], output, block_factor[r]).store(row);
    });
  }

  static Range within_page(Range around, int page) {
    const int begin = page * PAGE_TOKENS, end = begin + PAGE_TOKENS;
    return {around.begin > begin ? around.begin : begin, around.end < end ? around.end : end};
  }

  // Scores of the tokens of one page, and the largest that each row sees.
  template <bool SEALED, bool MASKED>
  void score_page(Part keys, Range tokens, const Mask<MASKED> &mask, Lanes *maximum) const {
    Lanes factor[WIDE_REGISTERS], base[WIDE_REGISTERS];
    for (int r = 0; r < WIDE_REGISTERS; ++r) {
      factor[r] = Lanes::load(factors_ + 16 * r);
      if (SEALED) fold(Sealed(keys, 0, dim_), r, &factor[r], &base[r]);
    }
    for (int token = tokens.begin; token < tokens.end; token += WIDE_COUNT) {
      alignas(64) int32_t sums[WIDE_COUNT * WIDE_ROWS];
      multiply_rows(dim_ / 2, scratch_.keys + token, BLOCK_TOKENS, SEALED ? scratch_.folded : queries_, sums);
      for (int i = 0; i < WIDE_COUNT; ++i) {
        const Lanes scale(scratch_.key_scales[token + i]);
        for (int r = 0; r < WIDE_REGISTERS; ++r) {
          const Lanes sum = to_float(Ints::load(sums + i * WIDE_ROWS + 16 * r));
          const Lanes score =
              SEALED ? sealed_score_of(sum, factor[r], base[r], p_.soft_cap) : score_of(sum, scale, factor[r], p_.soft_cap);
          score.store(scratch_.scores + (token + i) * WIDE_ROWS + 16 * r);
          maximum[r] = larger(maximum[r], mask(r, token + i, score, Lanes(NO_MAXIMUM)));
        }
      }
    }
  }

  // 16 rows of q folded with the scales of a page of K, as integers to the scratch.
  void fold(const Sealed &keys, int r, Lanes *factor, Lanes *base) const {
    float scales[MAX_HEAD_DIM], middles[MAX_HEAD_DIM];
    for (int d = 0; d < dim_; d += 16) {
      const Lanes scale = Lanes::load_half(keys.scales + d);
      scale.store(scales + d);
      middle_of(Lanes::load_half(keys.minima + d), scale, keys.format).store(middles + d);
    }
    const auto query = [&](int d) { return Lanes::load(raw_ + d * WIDE_ROWS + 16 * r); };
    Lanes most(0.0f), sums[16];
    for (int lane = 0; lane < 16; ++lane) {
      Lanes sum(0.0f);
      for (int d = lane; d < dim_; d += 16) {
        const Lanes q = query(d);
        most = larger(most, absolute(q * Lanes(scales[d])));
        sum = fused(q, Lanes(middles[d]), sum);
      }
      sums[lane] = sum;
    }
    const bool centred = middle_code(keys.format) != 0.0f;
    const float count = query_steps(keys.format);
    const Lanes steps = steps_of(most, count, SMALLEST), step = most * Lanes(1.0f / count);
    Lanes integers(0.0f);
    int32_t *folded = scratch_.folded + 16 * r;
    for (int d = 0; d < dim_; d += 2, folded += WIDE_ROWS) {
      const Lanes low = in_steps(query(d) * Lanes(scales[d]), steps),
                  high = in_steps(query(d + 1) * Lanes(scales[d + 1]), steps);
      pairs_of(low, high).store(folded);
      if (centred) integers = integers + (integer_of(low) + integer_of(high));
    }
    *factor = score_factor(step, p_.soft_cap);
    *base = score_factor(base_of(sum_tree(sums), step, integers, keys.format), p_.soft_cap);
  }

  // The tree of math.h, of 16 sums side by side.
  static Lanes sum_tree(Lanes *sums) {
    for (int width = 8; width; width /= 2) {
      for (int i = 0; i < width; ++i) sums[i] = sums[i] + sums[i + width];
    }
    return sums[0];
  }

  // Scores of 16 rows to weights that are not yet multiplied by V's scales, 0 where a row sees nothing.
  template <bool MASKED>
  void raise(int r, Range around, const Mask<MASKED> &mask, Lanes maximum, Lanes *total) const {
    float *scores = scratch_.scores + 16 * r;
    Lanes sum(0.0f);
    for (int token = around.begin; token < around.end; ++token) {
      float *at = scores + token * WIDE_ROWS;
      const Lanes power = mask(r, token, power_of<WEIGHT_POWER>(Lanes::load(at) - maximum), Lanes(0.0f));
      power.store(at);
      sum = sum + rounded(power);
    }
    *total = sum;
  }

  // Those of a segment to integers, pairs of tokens; returns what V's middles add.
  Lanes weigh_segment(int r, Range tokens, const SegmentScales &scales, int format, Lanes *step) const {
    const bool sealed = format != PageFormat::fp16, centred = middle_code(format) != 0.0f;
    const auto power = [&](int token) { return Lanes::load(scratch_.scores + token * WIDE_ROWS + 16 * r); };
    Lanes most(0.0f), sums[16];
    for (int lane = 0; lane < 16; ++lane) {
      Lanes sum(0.0f);
      for (int token = tokens.begin + ((lane - tokens.begin) & 15); token < tokens.end; token += 16) {
        most = larger(most, power(token) * Lanes(scales.scales[token]));
        if (sealed) sum = fused(power(token), Lanes(scales.middles[token]), sum);
      }
      sums[lane] = sum;
    }
    const Lanes steps = steps_of(most, weight_steps(format), SMALLEST);
    Lanes integers(0.0f);
    for (int token = tokens.begin; token < tokens.end; token += 2) {
      const Lanes low = in_steps(power(token) * Lanes(scales.scales[token]), steps);
      const Lanes high = in_steps(power(token + 1) * Lanes(scales.scales[token + 1]), steps);
      pairs_of(low, high).store(scratch_.weights + token / 2 * WIDE_ROWS + 16 * r);
      if (centred) integers = integers + (integer_of(low) + integer_of(high));
    }
    *step = most * Lanes(1.0f / weight_steps(format));
    return base_of(sum_tree(sums), *step, integers, format);
  }

  // Outputs of the block from weights that are not yet multiplied by V's scales; finish(channel, register of rows, outputs).
  template <class Finish>
  void sum_segments(const BlockParts &parts, Range around, const Finish &finish) const {
    for (int i = 0; i < parts.segment_count; ++i) {
      const Segment &segment = parts.segments[i];
      const bool is_first = i == 0, is_last = i + 1 == parts.segment_count;
      const Range tokens{within_page(around, segment.begin).begin, within_page(around, segment.end - 1).end};
      for (int first = 0, end; first < dim_; first = end) {
        end = first + group_channels(segment, dim_) < dim_ ? first + group_channels(segment, dim_) : dim_;
        const SegmentScales scales(segment, parts.values, scratch_.value_scales, dim_, first);
        Lanes step[WIDE_REGISTERS], base[WIDE_REGISTERS];
        for (int r = 0; r < WIDE_REGISTERS; ++r) base[r] = weigh_segment(r, tokens, scales, segment.format, &step[r]);
        for_channels(tokens, first, end, [&](int d, int r, Lanes sum) {
          float *sums = scratch_.segments + d * WIDE_ROWS + 16 * r;
          Lanes output = output_of_segment(segment, sum, step[r], base[r]);
          if (!is_first) output = Lanes::load(sums) + output;
          is_last ? finish(d, r, output) : output.store(sums);
        });
      }
    }
  }

  // A number of each of 16 rows to their partials.
  void spread(Lanes x, int r, float *partials) const {
    float numbers[16];
    x.store(numbers);
    for (int i = 0; i < 16 && 16 * r + i < rows_; ++i) partials[(16 * r + i) * (2 + dim_)] = numbers[i];
  }

  float *const raw_;  // [D][WIDE_ROWS]
};

}  // namespace
}  // namespace edge
