// 16 floats in two AVX2 registers: the V of math.h. Include it only in files built for AVX2, FMA and F16C.
#pragma once
#include <immintrin.h>

#include "math.h"

namespace edge {
namespace {

// Set bits in the first `count` (0 to 8, clamped) of 8 lanes.
inline __m256i first_lanes(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

struct Lanes {
  __m256 low, high;  // lanes 0 to 7, 8 to 15
  Lanes() = default;
  explicit Lanes(float x) : low(_mm256_set1_ps(x)), high(low) {}
  Lanes(__m256 low, __m256 high) : low(low), high(high) {}

  static Lanes load(const float *x) { return Lanes(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)); }
  // The first `count` floats (1 to 15), zeros behind them; nothing behind them is read.
  static Lanes load_first(const float *x, int count) {
    return Lanes(_mm256_maskload_ps(x, first_lanes(count)), _mm256_maskload_ps(x + 8, first_lanes(count - 8)));
  }
  static Lanes load_half(const uint16_t *x) {
    return Lanes(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(x))),
                 _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(x + 8))));
  }
  void store(float *x) const {
    _mm256_storeu_ps(x, low);
    _mm256_storeu_ps(x + 8, high);
  }
  void store_first(float *x, int count) const {
    _mm256_maskstore_ps(x, first_lanes(count), low);
    _mm256_maskstore_ps(x + 8, first_lanes(count - 8), high);
  }
  void store_half(uint16_t *x) const {
    constexpr int NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm_storeu_si128(reinterpret_cast<__m128i *>(x), _mm256_cvtps_ph(low, NEAREST));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(x + 8), _mm256_cvtps_ph(high, NEAREST));
  }
};

inline Lanes operator+(Lanes a, Lanes b) { return Lanes(_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)); }
inline Lanes operator-(Lanes a, Lanes b) { return Lanes(_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)); }
inline Lanes operator*(Lanes a, Lanes b) { return Lanes(_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)); }
inline Lanes operator/(Lanes a, Lanes b) { return Lanes(_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)); }
inline Lanes fused(Lanes a, Lanes b, Lanes c) {
  return Lanes(_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high));
}
inline Lanes larger(Lanes a, Lanes b) { return Lanes(_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)); }
inline Lanes smaller(Lanes a, Lanes b) { return Lanes(_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)); }
inline Lanes select_less(Lanes a, Lanes b, Lanes yes, Lanes no) {
  return Lanes(_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
               _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)));
}
inline Lanes absolute(Lanes x) {
  __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return Lanes(_mm256_and_ps(x.low, mask), _mm256_and_ps(x.high, mask));
}
inline Lanes square_root(Lanes x) { return Lanes(_mm256_sqrt_ps(x.low), _mm256_sqrt_ps(x.high)); }
inline __m256 power_of_two(__m256 shifted) {
  __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(exponent, _mm256_set1_epi32(0x3f800000)));
}
inline Lanes power_of_two(Lanes shifted) { return Lanes(power_of_two(shifted.low), power_of_two(shifted.high)); }
inline __m256 times_power(__m256 x, __m256 shifted) {
  __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), exponent));
}
inline Lanes times_power(Lanes x, Lanes shifted) {
  return Lanes(times_power(x.low, shifted.low), times_power(x.high, shifted.high));
}
inline Lanes rounded(Lanes x) {
  constexpr int NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return Lanes(_mm256_round_ps(x.low, NEAREST), _mm256_round_ps(x.high, NEAREST));
}

// The last three steps of the tree: 8 lanes to one.
inline float sum_8_lanes(__m256 x) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float sum_lanes(Lanes x) { return sum_8_lanes(_mm256_add_ps(x.low, x.high)); }
// The largest bit pattern of |a| and |b|: for magnitudes the order of the patterns is the order of the numbers, infinities and
// NaNs come last.
inline uint32_t largest_magnitude_bits(Lanes a, Lanes b) {
  a = absolute(a), b = absolute(b);
  __m256i eight = _mm256_max_epi32(_mm256_max_epi32(_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)),
                                   _mm256_max_epi32(_mm256_castps_si256(b.low), _mm256_castps_si256(b.high)));
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return uint32_t(_mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1))));
}
// Rounds to nearest even (|x| <= 127), stores int8 and returns the sum.
inline int32_t store_int8(Lanes x, int8_t *out) {
  __m256i low = _mm256_cvtps_epi32(x.low), high = _mm256_cvtps_epi32(x.high);
  __m128i words_low = _mm_packs_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  __m128i words_high = _mm_packs_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i *>(out), _mm_packs_epi16(words_low, words_high));
  __m256i eight = _mm256_add_epi32(low, high);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
// The largest lane; exact in any order as long as no lane is a NaN.
inline float largest_lane(Lanes x) {
  __m256 eight = _mm256_max_ps(x.low, x.high);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// 4 bytes in every lane. GCC may not keep them for later: it had all of a step's on the stack, read twice each.
inline __m256i broadcast_4(const int8_t *at) {
  int32_t four;
  memcpy(&four, at, sizeof four);
  __m256i lanes = _mm256_set1_epi32(four);
  asm("" : "+x"(lanes));
  return lanes;
}

// sums + products of 16 bits. GCC may not make a tree of such sums, which has every term on the stack: half as fast.
inline __m256i add_products(__m256i sums, __m256i bytes, __m256i signed_bytes) {
  sums = _mm256_add_epi16(sums, _mm256_maddubs_epi16(bytes, signed_bytes));
  asm("" : "+x"(sums));
  return sums;
}

inline __m256i add_pairs(__m256i words) { return _mm256_madd_epi16(words, _mm256_set1_epi16(1)); }

// 16 int32, or 16 pairs of int16.
struct Ints {
  __m256i low, high;
  static Ints zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static Ints load(const int32_t *x) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i *>(x)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i *>(x + 8))};
  }
  static Ints all(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  void store(int32_t *x) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(x), low);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(x + 8), high);
  }
};
using WordPairs = Ints;
// In every lane sum + a's low * b's low + a's high * b's high.
inline Ints dot_pairs(Ints sum, Ints a, Ints b) {
  return {_mm256_add_epi32(sum.low, _mm256_madd_epi16(a.low, b.low)),
          _mm256_add_epi32(sum.high, _mm256_madd_epi16(a.high, b.high))};
}
// Holds the compiler to the order in which sums are written: it adds integers as a tree, for which there are no registers.
inline void keep_order(Ints &sum) { asm("" : "+x"(sum.low), "+x"(sum.high)); }
// 16 words of a sealed page (page_format.h), whose pairs are taken in order.
struct PackedPairs {
  __m256i low, high;
  static PackedPairs load(const uint32_t *x) {
    const __m256i *words = reinterpret_cast<const __m256i *>(x);
    return {_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1)};
  }
  template <int BITS>
  WordPairs take() {
    return take_under<BITS>(_mm256_set1_epi16((1 << BITS) - 1));
  }
  // 4 values a word at a time, in the order of store_bytes.
  template <int BITS>
  Ints take_bytes() {
    return take_under<BITS>(_mm256_set1_epi8((1 << BITS) - 1));
  }

 private:
  template <int BITS>
  Ints take_under(__m256i mask) {
    const Ints values{_mm256_and_si256(low, mask), _mm256_and_si256(high, mask)};
    low = _mm256_srli_epi32(low, BITS);
    high = _mm256_srli_epi32(high, BITS);
    return values;
  }
};
// 16 pairs of sums of 16 bits, of products of bytes.
struct ByteSums {
  __m256i low, high;
  static ByteSums all(int16_t x) { return {_mm256_set1_epi16(x), _mm256_set1_epi16(x)}; }
  // Values of a page, unsigned, by 4 signed bytes at `four`; signed, by 4 unsigned bytes.
  void add_by_signed(Ints values, const int8_t *four) {
    const __m256i bytes = broadcast_4(four);
    low = add_products(low, values.low, bytes);
    high = add_products(high, values.high, bytes);
  }
  void add_by_unsigned(Ints values, const int8_t *four) {
    const __m256i bytes = broadcast_4(four);
    low = add_products(low, bytes, values.low);
    high = add_products(high, bytes, values.high);
  }
  Ints added_to(Ints sums) const {
    return {_mm256_add_epi32(sums.low, add_pairs(low)), _mm256_add_epi32(sums.high, add_pairs(high))};
  }
};
// The low 16 bits of two.
inline __m256i pairs_of(__m256 low, __m256 high) {
  return _mm256_blend_epi16(_mm256_castps_si256(low), _mm256_slli_epi32(_mm256_castps_si256(high), 16), 0xaa);
}
inline WordPairs pairs_of(Lanes low, Lanes high) { return {pairs_of(low.low, high.low), pairs_of(low.high, high.high)}; }
inline void store_words(Lanes x, int16_t *out) {  // the low 16 bits of each
  const __m256i mask = _mm256_set1_epi32(0xffff);
  const __m256i mixed = _mm256_packus_epi32(_mm256_and_si256(_mm256_castps_si256(x.low), mask),
                                            _mm256_and_si256(_mm256_castps_si256(x.high), mask));
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(out), _mm256_permute4x64_epi64(mixed, 0xd8));
}
// The low 8 bits of each, ordered as take_bytes<BITS> takes values from words: the values of a word's lower half, their even
// ones first, in turn with those of its upper half.
template <int BITS>
inline void store_bytes(Lanes x, int8_t *out) {
  const __m256i mask = _mm256_set1_epi32(0xff);
  const __m256i low = _mm256_and_si256(_mm256_castps_si256(x.low), mask);
  const __m256i high = _mm256_and_si256(_mm256_castps_si256(x.high), mask);
  __m128i bytes;
  if constexpr (BITS == 4) {  // 8 values a word: 0 to 3 in turn with 4 to 7
    const __m256i words = _mm256_packus_epi32(low, high);
    bytes = _mm_or_si128(_mm256_castsi256_si128(words), _mm_slli_epi16(_mm256_extracti128_si256(words, 1), 8));
  } else {  // 16 values a word: 0 to 7 in turn with 8 to 15
    const __m256i words = _mm256_or_si256(low, _mm256_slli_epi32(high, 8));
    bytes = _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  }
  _mm_storeu_si128(reinterpret_cast<__m128i *>(out), bytes);
}
inline Lanes to_float(Ints x) { return Lanes(_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)); }

}  // namespace
}  // namespace edge
