// Sealing of fp16 pages for any `Lanes`: include it behind a lanes_*.h, in files built for that instruction set. Other moves
// take the plain loops: they copy, or come under pressure alone.
#pragma once
#include "attention.h"
#include "move.h"

namespace edge {
namespace {

// 16 quantisers side by side, as quantiser_of; scales and minima as halves and as floats.
inline void store_quantisers(Lanes low, Lanes high, float steps, uint16_t *scales, uint16_t *minima, float *scales_as_floats,
                             float *minima_as_floats) {
  (low + Lanes(0.0f)).store_half(minima);
  const Lanes minimum = Lanes::load_half(minima), spread = larger(high - minimum, Lanes(0.0f));
  (spread / Lanes(steps)).store_half(scales);
  float is_short[16];
  select_less(Lanes::load_half(scales) * Lanes(steps), spread, Lanes(1.0f), Lanes(0.0f)).store(is_short);
  for (int i = 0; i < 16; ++i) scales[i] = uint16_t(scales[i] + uint16_t(is_short[i]));
  Lanes::load_half(scales).store(scales_as_floats);
  minimum.store(minima_as_floats);
}

// Smallest and largest of `count` halves, a multiple of 16.
inline void find_ends(const uint16_t *x, int count, float *low, float *high) {
  Lanes most = Lanes::load_half(x), least = most;
  for (int i = 16; i < count; i += 16) {
    const Lanes v = Lanes::load_half(x + i);
    most = larger(most, v);
    least = smaller(least, v);
  }
  *high = largest_lane(most);
  *low = 0.0f - largest_lane(Lanes(0.0f) - least);
}

// 16 words: value i of lane l is that of halves[i * stride + l]. Sums of values in their places are exact as floats.
template <int BITS>
inline void store_words_of(const uint16_t *halves, int64_t stride, const float *scales, const float *minima, uint32_t *words) {
  constexpr float STEPS = float((1 << BITS) - 1);
  Lanes sums[2] = {Lanes(0.0f), Lanes(0.0f)};
  float place = 1.0f;
  for (int i = 0; i < 32 / BITS; i += 2, place *= float(1 << BITS)) {
    for (int half = 0; half < 2; ++half) {
      const Lanes x = Lanes::load_half(halves + (i + half) * stride);
      const Lanes value = value_of(x, Lanes(scales[i + half]), Lanes(minima[i + half]), Lanes(STEPS)) - Lanes(ROUNDING);
      sums[half] = fused(value, Lanes(place), sums[half]);
    }
  }
  pairs_of(sums[0] + Lanes(ROUNDING), sums[1] + Lanes(ROUNDING)).store(reinterpret_cast<int32_t *>(words));
}

template <int BITS>
void seal_keys(const uint16_t *from, int dim, const SealedPart &layout, uint8_t *to) {
  constexpr int VALUES = 32 / BITS;
  uint32_t *words = reinterpret_cast<uint32_t *>(to);
  uint16_t *scales = reinterpret_cast<uint16_t *>(to + layout.scales_offset());
  uint16_t *minima = reinterpret_cast<uint16_t *>(to + layout.minima_offset());
  for (int first = 0; first < dim; first += 16) {
    float lows[16], highs[16], scale[16], minimum[16];
    for (int d = 0; d < 16; ++d) find_ends(from + (first + d) * PAGE_TOKENS, PAGE_TOKENS, lows + d, highs + d);
    store_quantisers(Lanes::load(lows), Lanes::load(highs), float((1 << BITS) - 1), scales + first, minima + first, scale,
                     minimum);
    for (int d = 0; d < 16; d += VALUES, words += PAGE_TOKENS) {
      for (int token = 0; token < PAGE_TOKENS; token += 16) {
        store_words_of<BITS>(from + (first + d) * PAGE_TOKENS + token, PAGE_TOKENS, scale + d, minimum + d, words + token);
      }
    }
  }
}

template <int BITS>
void seal_values(const uint16_t *from, int dim, const SealedPart &layout, uint8_t *to) {
  constexpr int VALUES = 32 / BITS;
  uint16_t *scales = reinterpret_cast<uint16_t *>(to + layout.scales_offset());
  uint16_t *minima = reinterpret_cast<uint16_t *>(to + layout.minima_offset());
  for (int first = 0; first < dim; first += layout.group(), scales += PAGE_TOKENS, minima += PAGE_TOKENS) {
    const int count = dim - first < layout.group() ? dim - first : layout.group();
    float scale[PAGE_TOKENS], minimum[PAGE_TOKENS];
    for (int token = 0; token < PAGE_TOKENS; token += 16) {
      float lows[16], highs[16];
      for (int i = 0; i < 16; ++i) find_ends(from + (token + i) * dim + first, count, lows + i, highs + i);
      store_quantisers(Lanes::load(lows), Lanes::load(highs), float((1 << BITS) - 1), scales + token, minima + token,
                       scale + token, minimum + token);
    }
    uint32_t *words = reinterpret_cast<uint32_t *>(to) + first;
    for (int token = 0; token < PAGE_TOKENS; token += VALUES, words += dim) {
      for (int d = 0; d < count; d += 16) {
        store_words_of<BITS>(from + token * dim + first + d, dim, scale + token, minimum + token, words + d);
      }
    }
  }
}

template <int BITS>
void seal_lanes(const MoveParams &p) {
  const SealedPart layout(p.side, p.target_format, p.head_dim);
  const int64_t bytes = part_bytes(p.side, p.target_format, p.head_dim);
  const uint16_t *from = reinterpret_cast<const uint16_t *>(p.source);
  uint8_t *to = p.target;
  for (int head = 0; head < p.num_kv_heads; ++head, from += PAGE_TOKENS * p.head_dim, to += bytes) {
    is_key(p.side) ? seal_keys<BITS>(from, p.head_dim, layout, to) : seal_values<BITS>(from, p.head_dim, layout, to);
    memset(to + layout.bytes(), 0, size_t(bytes - layout.bytes()));
  }
}

bool is_sealed_by_lanes(const MoveParams &p) {
  return p.source_format == PageFormat::fp16 && p.target_format != PageFormat::fp16 && p.head_dim % 16 == 0;
}
void move_lanes(const MoveParams &p) {
  switch (p.target_format) {
    case PageFormat::int8: return seal_lanes<8>(p);
    case PageFormat::int4: return seal_lanes<4>(p);
    default: return seal_lanes<2>(p);
  }
}

}  // namespace
}  // namespace edge
