// Few rows against a block with sealed pages among its own: the same integers, formulas and merge as attention_narrow.h, with
// scores a page at a time and sums a segment of V at a time.
#pragma once
#include <type_traits>

#include "attention_narrow.h"
#include "attention_narrow_sealed.h"

namespace edge {
namespace {

template <int BITS>
using ProductsOf = std::conditional_t<BITS <= 4, SmallProducts, WordProducts>;

class MixedNarrow : public Narrow {
 public:
  using Narrow::Narrow;

  void run(int block, Range span, Range next, float *partials) {
    if (!has_sealed_pages(p_, block, span)) return Narrow::run(block, span, next, partials);
    switch (rows_) {
      case 1: return run_mixed<1>(block, span, next, partials);
      case 2: return run_mixed<2>(block, span, next, partials);
      case 3: return run_mixed<3>(block, span, next, partials);
      case 4: return run_mixed<4>(block, span, next, partials);
      case 5: return run_mixed<5>(block, span, next, partials);
      case 6: return run_mixed<6>(block, span, next, partials);
      case 7: return run_mixed<7>(block, span, next, partials);
      default: return run_mixed<8>(block, span, next, partials);
    }
  }

 private:
  template <int ROWS>
  void run_mixed(int block, Range span, Range next, float *partials) {
    Ahead ahead(p_, block, next);
    const BlockParts parts(p_, block, span);
    ValuePages values;
    for (int page = parts.begin; page < parts.end; ++page) {
      if (parts.values[page].format == PageFormat::fp16) {
        const int at = page * PAGE_TOKENS;
        values.pages[page] = parts.values[page].halves();
        scale_values(values.pages[page], dim_, scratch_.value_scales + at, values.factors + at);
      }
      ahead.fetch(dim_ / 8);
      score_page<ROWS>(parts.keys[page], page * PAGE_TOKENS, ahead);
    }
    const Range around{parts.begin * PAGE_TOKENS, parts.end * PAGE_TOKENS};
    float maxima[ROWS], totals[ROWS], old_factors[ROWS], block_factors[ROWS];
    for (int r = 0; r < ROWS; ++r) {
      const Range seen = visible(position(r), position(r), p_.window, block);
      maxima[r] = largest_score(r, around, seen);
      totals[r] = raise(r, around, seen, maxima[r]);
    }
    for (int r = 0; r < ROWS; ++r) {
      if (partials) {
        partials[r * (2 + dim_)] = maxima[r];
        partials[r * (2 + dim_) + 1] = totals[r];
        continue;
      }
      const float old = scratch_.maxima[r], both = larger(old, maxima[r]);
      old_factors[r] = power_of<0>(old - both);
      block_factors[r] = power_of<0>(maxima[r] - both);
      scratch_.maxima[r] = both;
      scratch_.totals[r] = merged(scratch_.totals[r], old_factors[r], totals[r], block_factors[r]);
    }
    sum_segments<ROWS>(parts, values, ahead, [&](int r, int d, Lanes output) {
      if (partials) return output.store(partials + r * (2 + dim_) + 2 + d);
      float *row = scratch_.outputs + r * dim_ + d;
      merged(Lanes::load(row), Lanes(old_factors[r]), output, Lanes(block_factors[r])).store(row);
    });
  }

  // Scores [row][128] of the page of the block's tokens from `at` on.
  template <int ROWS>
  void score_page(Part part, int at, Ahead &ahead) const {
    if (part.format == PageFormat::fp16) return score_halves<ROWS>(part, at, ahead);
    part.format == PageFormat::int8 ? score_sealed<ROWS, 8>(part, at, ahead) : score_sealed<ROWS, 4>(part, at, ahead);
  }

  template <int ROWS, int BITS>
  void score_sealed(Part part, int at, Ahead &ahead) const {
    using Products = ProductsOf<BITS>;
    const Sealed keys(part, 0, dim_);
    auto *integers = reinterpret_cast<typename Products::Integer *>(scratch_.folded);
    // By value: a store of bytes may be to whatever is reached through a pointer, which would be read again behind each.
    const Folded<ROWS, Bits<BITS>::format> folded(
        queries_, keys, dim_, p_.soft_cap,
        [integers, dim = dim_](int r, int d, Lanes steps) { Products::template store<BITS>(steps, integers + r * dim + d); });
    Products::template multiply_keys<ROWS, BITS>(keys, dim_, integers, ahead, [&](int r, int token, Ints sum) {
      sealed_score_of(to_float(sum), Lanes(folded.factors[r]), Lanes(folded.bases[r]), p_.soft_cap)
          .store(scratch_.scores + r * BLOCK_TOKENS + at + token);
    });
  }

  template <int ROWS>
  __attribute__((noinline)) void score_halves(Part part, int at, Ahead &ahead) const {
    float factors[PAGE_TOKENS];
    int32_t *sums = reinterpret_cast<int32_t *>(scratch_.scores);
    scale_keys(part.halves(), dim_, scratch_.key_scales + at, factors);
    multiply_keys<ROWS>(part.halves(), dim_, factors, scratch_.queries, {part.bytes, part.bytes}, ahead, sums + at);
    for (int r = 0; r < ROWS; ++r) score(r, {at, at + PAGE_TOKENS}, {0, 0});
  }

  // The largest score that a row sees.
  float largest_score(int r, Range around, Range seen) const {
    const float *scores = scratch_.scores + r * BLOCK_TOKENS;
    Lanes most(NO_MAXIMUM);
    for (int i = around.begin; i < around.end; i += 16) {
      most = larger(most, within(Lanes::load(scores + i), i, seen, Lanes(NO_MAXIMUM)));
    }
    return largest_lane(most);
  }

  // Scores to weights that are not yet multiplied by V's scales, 0 where the row sees nothing; returns their sum.
  float raise(int r, Range around, Range seen, float maximum) const {
    float *scores = scratch_.scores + r * BLOCK_TOKENS;
    Lanes total(0.0f);
    for (int i = around.begin; i < around.end; i += 16) {
      const Lanes power = within(power_of<WEIGHT_POWER>(Lanes::load(scores + i) - Lanes(maximum)), i, seen, Lanes(0.0f));
      power.store(scores + i);
      total = total + rounded(power);
    }
    return sum_lanes(total);
  }

  // Those of a segment to integers, as the products of its format want them; returns what V's middles add.
  template <int FORMAT, class Store>
  static float weigh_segment(const float *powers, const Segment &segment, const SegmentScales &scales, float *step,
                             const Store &store) {
    const int begin = segment.begin * PAGE_TOKENS, end = segment.end * PAGE_TOKENS;
    Lanes most(0.0f), base(0.0f), integers(0.0f);
    for (int i = begin; i < end; i += 16) {
      const Lanes power = Lanes::load(powers + i);
      most = larger(most, power * Lanes::load(scales.scales + i));
      if (FORMAT != PageFormat::fp16) base = fused(power, Lanes::load(scales.middles + i), base);
    }
    const float largest = largest_lane(most);
    const Lanes factor(steps_of(largest, weight_steps(FORMAT), SMALLEST));
    for (int i = begin; i < end; i += 16) {
      const Lanes steps = in_steps(Lanes::load(powers + i) * Lanes::load(scales.scales + i), factor);
      store(i, steps);
      if (middle_code(FORMAT) != 0.0f) integers = integers + integer_of(steps);
    }
    *step = largest * (1.0f / weight_steps(FORMAT));
    return base_of(sum_lanes(base), *step, sum_lanes(integers), FORMAT);
  }

  // Outputs of the block from weights that are not yet multiplied by V's scales; finish(row, channel, outputs).
  template <int ROWS, class Finish>
  void sum_segments(const BlockParts &parts, ValuePages &values, Ahead &ahead, const Finish &finish) const {
    for (int i = 0; i < parts.segment_count; ++i) {
      const Segment &segment = parts.segments[i];
      const bool is_first = i == 0, is_last = i + 1 == parts.segment_count;
      values.begin = segment.begin;
      values.end = segment.end;
      for (int first = 0, end; first < dim_; first = end) {
        end = first + group_channels(segment, dim_) < dim_ ? first + group_channels(segment, dim_) : dim_;
        const SegmentScales scales(segment, parts.values, scratch_.value_scales, dim_, first);
        float steps[ROWS], bases[ROWS];
        const auto outputs = [&](int r, int d, Ints sum) {
          float *sums = scratch_.segments + r * dim_ + d;
          Lanes output = output_of_segment(segment, to_float(sum), Lanes(steps[r]), Lanes(bases[r]));
          if (!is_first) output = Lanes::load(sums) + output;
          is_last ? finish(r, d, output) : output.store(sums);
        };
        if (segment.format == PageFormat::fp16) {
          for (int r = 0; r < ROWS; ++r) {
            const auto store = [to = weights_of<int16_t>(r)](int token, Lanes x) { store_words(x, to + token); };
            bases[r] = weigh_segment<PageFormat::fp16>(powers_of(r), segment, scales, &steps[r], store);
          }
          multiply_channels<ROWS>(values, ahead, outputs);
          continue;
        }
        with_bits(segment.format, [&](auto bits) {
          constexpr int BITS = bits.bits;
          using Products = ProductsOf<BITS>;
          for (int r = 0; r < ROWS; ++r) {
            const auto store = [to = weights_of<typename Products::Integer>(r)](int token, Lanes x) {
              Products::template store<BITS>(x, to + token);
            };
            bases[r] = weigh_segment<Bits<BITS>::format>(powers_of(r), segment, scales, &steps[r], store);
          }
          multiply_sealed_channels<ROWS, BITS>(parts, segment, first, end, ahead, outputs);
        });
      }
    }
  }

  const float *powers_of(int r) const { return scratch_.scores + r * BLOCK_TOKENS; }
  template <class Integer>
  Integer *weights_of(int r) const {
    return reinterpret_cast<Integer *>(scratch_.weights) + r * BLOCK_TOKENS;
  }

  template <int ROWS, int BITS, class Outputs>
  void multiply_sealed_channels(const BlockParts &parts, const Segment &segment, int d, int end, Ahead &ahead,
                                const Outputs &outputs) const {
    using Products = ProductsOf<BITS>;
    constexpr int COUNT = Products::template channels<ROWS>();
    const auto *weights = weights_of<typename Products::Integer>(0);
    const auto multiply = [&]<int N>(Bits<N>) {
      Products::template multiply_values<ROWS, N, BITS>(parts.values, segment, dim_, d, weights, ahead, outputs);
    };
    for (; d + 16 * COUNT <= end; d += 16 * COUNT) multiply(Bits<COUNT>());
    for (; d < end; d += 16) multiply(Bits<1>());
  }
};

}  // namespace
}  // namespace edge
