// Sealed pages for any SIMD instruction set: queries folded with a page's scales, words to pairs of integers, weights with V's
// scales. Include it behind what attention_panels.h asks for.
#pragma once
#include "attention_panels.h"

namespace edge {
namespace {

// A sealed part's sections.
struct Sealed {
  int format;
  const uint32_t *words;
  const uint16_t *scales, *minima;

  Sealed(Part part, int side, int dim) : format(part.format) {
    const SealedPart layout(side, part.format, dim);
    words = reinterpret_cast<const uint32_t *>(part.bytes);
    scales = reinterpret_cast<const uint16_t *>(part.bytes + layout.scales_offset());
    minima = reinterpret_cast<const uint16_t *>(part.bytes + layout.minima_offset());
  }
};

template <int N>
struct Bits {
  static constexpr int bits = N, pairs = 16 / N;  // pairs a word
  static constexpr int format = N == 8 ? PageFormat::int8 : N == 4 ? PageFormat::int4 : PageFormat::int2;
};
// Calls work(Bits<..>()) of a sealed format.
template <class Work>
inline void with_bits(int format, Work work) {
  switch (format) {
    case PageFormat::int8: return work(Bits<8>());
    case PageFormat::int4: return work(Bits<4>());
    default: return work(Bits<2>());
  }
}

// A page of K to `panel`, pairs of channels [D / 2][128 tokens].
inline void unpack_keys(Part part, int dim, int32_t *panel) {
  const Sealed keys(part, 0, dim);
  with_bits(part.format, [&](auto bits) {
    const uint32_t *from = keys.words;
    for (int d = 0; d < dim; d += 2 * bits.pairs, from += PAGE_TOKENS, panel += bits.pairs * BLOCK_TOKENS) {
      PackedPairs low = PackedPairs::load(from), high = PackedPairs::load(from + 16);
#pragma GCC unroll 8
      for (int pair = 0; pair < bits.pairs; ++pair) {
        low.template take<bits.bits>().store(panel + pair * BLOCK_TOKENS);
        high.template take<bits.bits>().store(panel + pair * BLOCK_TOKENS + 16);
      }
    }
  });
}

// A page of V to `panel`, pairs of tokens [16][D].
inline void unpack_values(Part part, int dim, int32_t *panel) {
  const Sealed values(part, 1, dim);
  with_bits(part.format, [&](auto bits) {
    const uint32_t *from = values.words;
    for (int token = 0; token < PAGE_TOKENS; token += 2 * bits.pairs, from += dim, panel += bits.pairs * dim) {
      for (int d = 0; d < dim; d += 16) {
        PackedPairs packed = PackedPairs::load(from + d);
#pragma GCC unroll 8
        for (int pair = 0; pair < bits.pairs; ++pair) packed.template take<bits.bits>().store(panel + pair * dim + d);
      }
    }
  });
}

// Rows of q folded with the scales of a page of K, as integers to store(row, channel, 16 in_steps); what their sums are worth.
template <int ROWS, int FORMAT>
struct Folded {
  float factors[ROWS], bases[ROWS];

  template <class Store>
  Folded(const float *const *queries, const Sealed &keys, int dim, float soft_cap, const Store &store) {
    float scales[MAX_HEAD_DIM], middles[MAX_HEAD_DIM], products[ROWS][MAX_HEAD_DIM], largest[ROWS], sums[ROWS];
    for (int d = 0; d < dim; d += 16) {
      const Lanes scale = Lanes::load_half(keys.scales + d);
      scale.store(scales + d);
      middle_of(Lanes::load_half(keys.minima + d), scale, FORMAT).store(middles + d);
    }
    // Two loops, so that the walks across registers at the end of the first overlap.
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      Lanes most(0.0f), sum(0.0f);
      for (int d = 0; d < dim; d += 16) {
        const Lanes q = Lanes::load(queries[r] + d), product = q * Lanes::load(scales + d);
        product.store(products[r] + d);
        most = larger(most, absolute(product));
        sum = fused(q, Lanes::load(middles + d), sum);
      }
      largest[r] = query_magnitude(bits_of(largest_lane(most)));
      sums[r] = sum_lanes(sum);
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const Lanes factor(steps_of(largest[r], query_steps(FORMAT), SMALLEST));
      Lanes integers(0.0f);
      for (int d = 0; d < dim; d += 16) {
        const Lanes steps = in_steps(Lanes::load(products[r] + d), factor);
        store(r, d, steps);
        if (middle_code(FORMAT) != 0.0f) integers = integers + integer_of(steps);
      }
      const float step = largest[r] * (1.0f / query_steps(FORMAT));
      factors[r] = score_factor(step, soft_cap);
      bases[r] = score_factor(base_of(sums[r], step, sum_lanes(integers), FORMAT), soft_cap);
    }
  }
};

// Scales and middles of the tokens of a segment of V, of the group of channels at `first`; of fp16, scales alone.
struct SegmentScales {
  float scales[BLOCK_TOKENS], middles[BLOCK_TOKENS];

  SegmentScales(const Segment &segment, const Part *values, const float *half_scales, int dim, int first) {
    for (int page = segment.begin; page < segment.end; ++page) {
      float *scale = scales + page * PAGE_TOKENS, *middle = middles + page * PAGE_TOKENS;
      if (segment.format == PageFormat::fp16) {
        for (int i = 0; i < PAGE_TOKENS; i += 16) Lanes::load(half_scales + page * PAGE_TOKENS + i).store(scale + i);
        continue;
      }
      const Sealed part(values[page], 1, dim);
      const int group = SealedPart(1, segment.format, dim).scale_of(0, first);
#pragma GCC unroll 2
      for (int i = 0; i < PAGE_TOKENS; i += 16) {
        const Lanes x = Lanes::load_half(part.scales + group + i);
        x.store(scale + i);
        middle_of(Lanes::load_half(part.minima + group + i), x, segment.format).store(middle + i);
      }
    }
  }
};

// K and V of the pages of a block around a span, and V's segments.
struct BlockParts {
  Part keys[BLOCK_PAGES], values[BLOCK_PAGES];
  Segment segments[BLOCK_PAGES];
  int begin, end, segment_count;  // pages; segments

  BlockParts(const AttendParams &p, int block, Range span)
      : begin(span.begin / PAGE_TOKENS), end((span.end + PAGE_TOKENS - 1) / PAGE_TOKENS) {
    for (int page = begin; page < end; ++page) {
      keys[page] = part_of(p, block, page, 0);
      values[page] = part_of(p, block, page, 1);
    }
    segment_count = cut_segments(
        begin, end, [this](int page) { return values[page].format; }, segments);
  }
};

inline bool has_sealed_pages(const AttendParams &p, int block, Range span) {
  const int32_t *words = p.pages.page_table + (int64_t(p.seq) * p.pages.max_pages + block * BLOCK_PAGES) * 2;
  int32_t formats = 0;
  for (int page = span.begin / PAGE_TOKENS; page * PAGE_TOKENS < span.end; ++page) {
    formats |= words[2 * page] | words[2 * page + 1];
  }
  return format_of(formats) != PageFormat::fp16;
}

// Groups of channels of a segment that share a scale a token.
inline int group_channels(const Segment &segment, int dim) {
  return segment.format == PageFormat::fp16 || dim < VALUE_GROUPS[segment.format] ? dim : VALUE_GROUPS[segment.format];
}

inline Lanes output_of_segment(const Segment &segment, Lanes sum, Lanes step, Lanes base) {
  return segment.format == PageFormat::fp16 ? sum * step : output_of_sealed(sum, step, base);
}

}  // namespace
}  // namespace edge
