// 16 floats in one AVX-512 register: the V of math.h. Include it only in files built for AVX-512.
#pragma once
#include <immintrin.h>

#include "math.h"

namespace edge {
namespace {

struct Lanes {
  __m512 v;
  Lanes() = default;
  explicit Lanes(float x) : v(_mm512_set1_ps(x)) {}
  explicit Lanes(__m512 x) : v(x) {}

  static Lanes load(const float *x) { return Lanes(_mm512_loadu_ps(x)); }
  // The first `count` floats (1 to 15), zeros behind them; nothing behind them is read.
  static Lanes load_first(const float *x, int count) { return Lanes(_mm512_maskz_loadu_ps(__mmask16((1 << count) - 1), x)); }
  static Lanes load_half(const uint16_t *x) {
    return Lanes(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(x))));
  }
  void store(float *x) const { _mm512_storeu_ps(x, v); }
  void store_first(float *x, int count) const { _mm512_mask_storeu_ps(x, __mmask16((1 << count) - 1), v); }
  void store_half(uint16_t *x) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(x), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};

inline Lanes operator+(Lanes a, Lanes b) { return Lanes(_mm512_add_ps(a.v, b.v)); }
inline Lanes operator-(Lanes a, Lanes b) { return Lanes(_mm512_sub_ps(a.v, b.v)); }
inline Lanes operator*(Lanes a, Lanes b) { return Lanes(_mm512_mul_ps(a.v, b.v)); }
inline Lanes operator/(Lanes a, Lanes b) { return Lanes(_mm512_div_ps(a.v, b.v)); }
inline Lanes fused(Lanes a, Lanes b, Lanes c) { return Lanes(_mm512_fmadd_ps(a.v, b.v, c.v)); }
inline Lanes larger(Lanes a, Lanes b) { return Lanes(_mm512_max_ps(a.v, b.v)); }
inline Lanes smaller(Lanes a, Lanes b) { return Lanes(_mm512_min_ps(a.v, b.v)); }
inline Lanes select_less(Lanes a, Lanes b, Lanes yes, Lanes no) {
  return Lanes(_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v));
}
inline Lanes absolute(Lanes x) { return Lanes(_mm512_abs_ps(x.v)); }
inline Lanes square_root(Lanes x) { return Lanes(_mm512_sqrt_ps(x.v)); }
inline Lanes power_of_two(Lanes shifted) {
  __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted.v), 23);
  return Lanes(_mm512_castsi512_ps(_mm512_add_epi32(exponent, _mm512_set1_epi32(0x3f800000))));
}
inline Lanes times_power(Lanes x, Lanes shifted) {
  __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted.v), 23);
  return Lanes(_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x.v), exponent)));
}
inline Lanes rounded(Lanes x) { return Lanes(_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)); }

// The last three steps of the tree: 8 lanes to one.
inline float sum_8_lanes(__m256 x) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float sum_lanes(Lanes x) {
  return sum_8_lanes(_mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1)));
}
// The largest bit pattern of |a| and |b|: for magnitudes the order of the patterns is the order of the numbers, infinities and
// NaNs come last.
inline uint32_t largest_magnitude_bits(Lanes a, Lanes b) {
  return uint32_t(
      _mm512_reduce_max_epi32(_mm512_max_epi32(_mm512_castps_si512(absolute(a).v), _mm512_castps_si512(absolute(b).v))));
}
// Rounds to nearest even (|x| <= 127), stores int8 and returns the sum.
inline int32_t store_int8(Lanes x, int8_t *out) {
  __m512i quants = _mm512_cvtps_epi32(x.v);
  _mm_storeu_si128(reinterpret_cast<__m128i *>(out), _mm512_cvtepi32_epi8(quants));
  return _mm512_reduce_add_epi32(quants);
}
// The largest lane; exact in any order as long as no lane is a NaN.
inline float largest_lane(Lanes x) { return _mm512_reduce_max_ps(x.v); }

// 16 int32, or 16 pairs of int16.
struct Ints {
  __m512i v;
  static Ints zero() { return {_mm512_setzero_si512()}; }
  static Ints load(const int32_t *x) { return {_mm512_loadu_si512(x)}; }
  static Ints all(int32_t x) { return {_mm512_set1_epi32(x)}; }
  void store(int32_t *x) const { _mm512_storeu_si512(x, v); }
};
using WordPairs = Ints;
// In every lane sum + a's low * b's low + a's high * b's high.
inline Ints dot_pairs(Ints sum, Ints a, Ints b) { return {_mm512_dpwssd_epi32(sum.v, a.v, b.v)}; }
// Holds the compiler to the order in which sums are written: it adds integers as a tree, for which there are no registers.
inline void keep_order(Ints &sum) { asm("" : "+v"(sum.v)); }
// 16 words of a sealed page (page_format.h), whose pairs are taken in order.
struct PackedPairs {
  __m512i v;
  static PackedPairs load(const uint32_t *x) { return {_mm512_loadu_si512(x)}; }
  template <int BITS>
  WordPairs take() {
    const WordPairs pairs{_mm512_and_si512(v, _mm512_set1_epi16((1 << BITS) - 1))};
    v = _mm512_srli_epi32(v, BITS);
    return pairs;
  }
};
// The low 16 bits of two.
inline WordPairs pairs_of(Lanes low, Lanes high) {
  __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(high.v), 16);
  return {_mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_castps_si512(low.v), shifted)};
}
inline void store_words(Lanes x, int16_t *out) {  // the low 16 bits of each
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(out), _mm512_cvtepi32_epi16(_mm512_castps_si512(x.v)));
}
inline Lanes to_float(Ints x) { return Lanes(_mm512_cvtepi32_ps(x.v)); }

}  // namespace
}  // namespace edge
