// 16 floats in four NEON registers: the V of math.h. Needs nothing above ARMv8-A.
#pragma once
#include <arm_neon.h>

#include "math.h"

namespace edge {
namespace {

struct Lanes {
  float32x4_t a, b, c, d;  // lanes 0 to 3, 4 to 7, 8 to 11, 12 to 15
  Lanes() = default;
  explicit Lanes(float x) : a(vdupq_n_f32(x)), b(a), c(a), d(a) {}
  Lanes(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d) : a(a), b(b), c(c), d(d) {}

  static Lanes load(const float *x) { return Lanes(vld1q_f32(x), vld1q_f32(x + 4), vld1q_f32(x + 8), vld1q_f32(x + 12)); }
  // The first `count` floats (1 to 15), zeros behind them; nothing behind them is read.
  static Lanes load_first(const float *x, int count) {
    float all[16] = {};
    memcpy(all, x, size_t(count) * sizeof(float));
    return load(all);
  }
  static Lanes load_half(const uint16_t *x) {
    const float16x8_t low = vreinterpretq_f16_u16(vld1q_u16(x)), high = vreinterpretq_f16_u16(vld1q_u16(x + 8));
    return Lanes(vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low), vcvt_f32_f16(vget_low_f16(high)),
                 vcvt_high_f32_f16(high));
  }
  void store(float *x) const {
    vst1q_f32(x, a);
    vst1q_f32(x + 4, b);
    vst1q_f32(x + 8, c);
    vst1q_f32(x + 12, d);
  }
  void store_first(float *x, int count) const {
    float all[16];
    store(all);
    memcpy(x, all, size_t(count) * sizeof(float));
  }
  void store_half(uint16_t *x) const {
    vst1q_u16(x, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(a), b)));
    vst1q_u16(x + 8, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(c), d)));
  }
};

template <class Function>
inline Lanes each(Lanes x, Function f) {
  return Lanes(f(x.a), f(x.b), f(x.c), f(x.d));
}
template <class Function>
inline Lanes each(Lanes x, Lanes y, Function f) {
  return Lanes(f(x.a, y.a), f(x.b, y.b), f(x.c, y.c), f(x.d, y.d));
}

// Compare and select where an instruction that does the same has its own way with NaNs: fmax gives the NaN, math.h the second.
inline float32x4_t larger(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
inline float32x4_t smaller(float32x4_t x, float32x4_t y) { return vbslq_f32(vcltq_f32(x, y), x, y); }
inline float32x4_t power_of_two(float32x4_t shifted) {
  return vreinterpretq_f32_s32(vaddq_s32(vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23), vdupq_n_s32(0x3f800000)));
}

inline Lanes operator+(Lanes x, Lanes y) { return Lanes(x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d); }
inline Lanes operator-(Lanes x, Lanes y) { return Lanes(x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d); }
inline Lanes operator*(Lanes x, Lanes y) { return Lanes(x.a * y.a, x.b * y.b, x.c * y.c, x.d * y.d); }
inline Lanes operator/(Lanes x, Lanes y) { return Lanes(x.a / y.a, x.b / y.b, x.c / y.c, x.d / y.d); }
inline Lanes fused(Lanes x, Lanes y, Lanes z) {
  return Lanes(vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c), vfmaq_f32(z.d, x.d, y.d));
}
inline Lanes larger(Lanes x, Lanes y) {
  return each(x, y, [](float32x4_t u, float32x4_t v) { return larger(u, v); });
}
inline Lanes smaller(Lanes x, Lanes y) {
  return each(x, y, [](float32x4_t u, float32x4_t v) { return smaller(u, v); });
}
inline Lanes select_less(Lanes x, Lanes y, Lanes yes, Lanes no) {
  return Lanes(vbslq_f32(vcltq_f32(x.a, y.a), yes.a, no.a), vbslq_f32(vcltq_f32(x.b, y.b), yes.b, no.b),
               vbslq_f32(vcltq_f32(x.c, y.c), yes.c, no.c), vbslq_f32(vcltq_f32(x.d, y.d), yes.d, no.d));
}
inline Lanes absolute(Lanes x) {
  return each(x, [](float32x4_t v) { return vabsq_f32(v); });
}
inline Lanes square_root(Lanes x) {
  return each(x, [](float32x4_t v) { return vsqrtq_f32(v); });
}
inline Lanes power_of_two(Lanes shifted) {
  return each(shifted, [](float32x4_t v) { return power_of_two(v); });
}

inline float32x4_t times_power(float32x4_t x, float32x4_t shifted) {
  return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x), vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23)));
}
inline Lanes times_power(Lanes x, Lanes shifted) {
  return each(x, shifted, [](float32x4_t u, float32x4_t v) { return times_power(u, v); });
}
inline Lanes rounded(Lanes x) {
  return each(x, [](float32x4_t v) { return vrndnq_f32(v); });
}

inline float sum_lanes(Lanes x) {
  const float32x4_t four = (x.a + x.c) + (x.b + x.d);
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
// The largest bit pattern of |x| and |y|: for magnitudes the order of the patterns is the order of the numbers, infinities and
// NaNs come last.
inline uint32_t largest_magnitude_bits(Lanes x, Lanes y) {
  const auto bits = [](float32x4_t v) { return vreinterpretq_u32_f32(vabsq_f32(v)); };
  const auto largest = [bits](Lanes v) { return vmaxq_u32(vmaxq_u32(bits(v.a), bits(v.b)), vmaxq_u32(bits(v.c), bits(v.d))); };
  return vmaxvq_u32(vmaxq_u32(largest(x), largest(y)));
}
// Rounds to nearest even (|x| <= 127), stores int8 and returns the sum.
inline int32_t store_int8(Lanes x, int8_t *out) {
  const int16x8_t low = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(x.a)), vmovn_s32(vcvtnq_s32_f32(x.b)));
  const int16x8_t high = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(x.c)), vmovn_s32(vcvtnq_s32_f32(x.d)));
  const int8x16_t quants = vcombine_s8(vmovn_s16(low), vmovn_s16(high));
  vst1q_s8(out, quants);
  return vaddlvq_s8(quants);
}
// The largest lane; exact in any order as long as no lane is a NaN.
inline float largest_lane(Lanes x) { return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.a, x.b), vmaxq_f32(x.c, x.d))); }

// 16 int32.
struct Ints {
  int32x4_t a, b, c, d;
  static Ints zero() { return {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)}; }
  static Ints load(const int32_t *x) { return {vld1q_s32(x), vld1q_s32(x + 4), vld1q_s32(x + 8), vld1q_s32(x + 12)}; }
  void store(int32_t *x) const {
    vst1q_s32(x, a);
    vst1q_s32(x + 4, b);
    vst1q_s32(x + 8, c);
    vst1q_s32(x + 12, d);
  }
};
// 16 pairs of int16: in memory a pair's numbers side by side, in registers all first and all second numbers, as products of
// neighbours would need an addition across them. One pair for all lanes stays one, since a product can name its element.
struct WordPair {
  int16x4_t pair;
};
struct WordPairs {
  int16x8_t low[2], high[2];  // of lanes 0 to 7, 8 to 15
  static WordPairs load(const int32_t *x) {
    const int16_t *words = reinterpret_cast<const int16_t *>(x);
    const int16x8_t a = vld1q_s16(words), b = vld1q_s16(words + 8), c = vld1q_s16(words + 16), d = vld1q_s16(words + 24);
    return {{vuzp1q_s16(a, b), vuzp1q_s16(c, d)}, {vuzp2q_s16(a, b), vuzp2q_s16(c, d)}};
  }
  static WordPair all(int32_t x) { return {vreinterpret_s16_s32(vdup_n_s32(x))}; }
  void store(int32_t *x) const {
    int16_t *words = reinterpret_cast<int16_t *>(x);
    vst1q_s16(words, vzip1q_s16(low[0], high[0]));
    vst1q_s16(words + 8, vzip2q_s16(low[0], high[0]));
    vst1q_s16(words + 16, vzip1q_s16(low[1], high[1]));
    vst1q_s16(words + 24, vzip2q_s16(low[1], high[1]));
  }
};
// Holds the compiler to the order in which sums are written: it adds integers as a tree, for which there are no registers.
inline void keep_order(Ints &sum) { asm("" : "+w"(sum.a), "+w"(sum.b), "+w"(sum.c), "+w"(sum.d)); }
// 16 words of a sealed page (page_format.h), whose pairs are taken in order.
struct PackedPairs {
  uint16x8_t low[2], high[2];
  static PackedPairs load(const uint32_t *x) {
    const WordPairs words = WordPairs::load(reinterpret_cast<const int32_t *>(x));
    return {{vreinterpretq_u16_s16(words.low[0]), vreinterpretq_u16_s16(words.low[1])},
            {vreinterpretq_u16_s16(words.high[0]), vreinterpretq_u16_s16(words.high[1])}};
  }
  template <int BITS>
  static int16x8_t take(uint16x8_t &x) {
    const int16x8_t values = vreinterpretq_s16_u16(vandq_u16(x, vdupq_n_u16((1 << BITS) - 1)));
    x = vshrq_n_u16(x, BITS);
    return values;
  }
  template <int BITS>
  WordPairs take() {
    return {{take<BITS>(low[0]), take<BITS>(low[1])}, {take<BITS>(high[0]), take<BITS>(high[1])}};
  }
};
// In every lane sum + a's low * b's low + a's high * b's high.
inline Ints dot_pairs(Ints sum, WordPairs a, WordPair b) {
  sum.a = vmlal_lane_s16(sum.a, vget_low_s16(a.low[0]), b.pair, 0);
  sum.b = vmlal_high_lane_s16(sum.b, a.low[0], b.pair, 0);
  sum.c = vmlal_lane_s16(sum.c, vget_low_s16(a.low[1]), b.pair, 0);
  sum.d = vmlal_high_lane_s16(sum.d, a.low[1], b.pair, 0);
  sum.a = vmlal_lane_s16(sum.a, vget_low_s16(a.high[0]), b.pair, 1);
  sum.b = vmlal_high_lane_s16(sum.b, a.high[0], b.pair, 1);
  sum.c = vmlal_lane_s16(sum.c, vget_low_s16(a.high[1]), b.pair, 1);
  sum.d = vmlal_high_lane_s16(sum.d, a.high[1], b.pair, 1);
  return sum;
}
inline Ints dot_pairs(Ints sum, WordPair a, WordPairs b) { return dot_pairs(sum, b, a); }
// The low 16 bits of 8 floats.
inline int16x8_t words_of(float32x4_t x, float32x4_t y) {
  return vuzp1q_s16(vreinterpretq_s16_f32(x), vreinterpretq_s16_f32(y));
}
inline WordPairs pairs_of(Lanes low, Lanes high) {
  return {{words_of(low.a, low.b), words_of(low.c, low.d)}, {words_of(high.a, high.b), words_of(high.c, high.d)}};
}
inline void store_words(Lanes x, int16_t *out) {
  vst1q_s16(out, words_of(x.a, x.b));
  vst1q_s16(out + 8, words_of(x.c, x.d));
}
inline Lanes to_float(Ints x) { return Lanes(vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b), vcvtq_f32_s32(x.c), vcvtq_f32_s32(x.d)); }

}  // namespace
}  // namespace edge
