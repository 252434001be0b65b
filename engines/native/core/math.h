// Elementwise functions and 16-lane sums that give the same bits on every instruction set.
//
// Every function is a template over V: `float` here (the plain twins), `Lanes` of lanes_avx2.h and lanes_avx512.h (16
// floats). A V has + - * /, and the overloads fused, larger, smaller, select_less, absolute, square_root, power_of_two
// and times_power below. The build turns implicit contraction off, so that `a * b + c` rounds twice everywhere and `fused` once
// everywhere.
//
// All of it sits in an anonymous namespace: files built for different instruction sets include this header, and the linker
// must never pick an AVX-512 copy of an inline function for a caller that runs on less. For the same reason no std::
// function templates are used in these files.
#pragma once
#include <cstdint>
#include <cstring>

namespace edge {
namespace {

// --- one float -----------------------------------------------------------------------------------------------------

inline uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }  // a * b + c, rounded once
// As maxps and minps: the second operand where either is a NaN.
inline float larger(float a, float b) { return a > b ? a : b; }
inline float smaller(float a, float b) { return a < b ? a : b; }
inline float select_less(float a, float b, float yes, float no) { return a < b ? yes : no; }
inline float absolute(float x) { return float_of(bits_of(x) & 0x7fffffffu); }
inline float square_root(float x) { return __builtin_sqrtf(x); }
// 2^n, n in -126..127, given n + ROUNDING as a float: its low mantissa bits are n.
inline float power_of_two(float shifted) { return float_of((bits_of(shifted) << 23) + 0x3f800000u); }

// x * 2^n likewise, for normal numbers.
inline float times_power(float x, float shifted) { return float_of(bits_of(x) + (bits_of(shifted) << 23)); }

// IEEE half precision, round to nearest even, subnormals kept, as vcvtph2ps and vcvtps2ph.
inline float half_to_float(uint16_t half) {
  uint32_t sign = uint32_t(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity; a NaN becomes quiet
    return float_of(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13 | (magnitude > 0x7c00u ? 0x400000u : 0));
  }
  if (magnitude >= 0x400u) return float_of(sign | ((magnitude << 13) + (112u << 23)));
  float value = float(magnitude) * 0x1p-24f;  // exact
  return float_of(sign | bits_of(value));
}

inline uint16_t float_to_half(float x) {
  uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // 65520 and more round to infinity
  if (magnitude < 0x38800000u) {                                  // below 2^-14: the sum's last bit is worth 2^-24
    return uint16_t(sign | (bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u));
  }
  return uint16_t(sign | (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
}

// The one tree over 16 lanes: i + (i + 8), then i + (i + 4), (i + 2), (i + 1).
inline float sum_lanes(const float lanes[16]) {
  float sums[8];
  for (int i = 0; i < 8; ++i) sums[i] = lanes[i] + lanes[i + 8];
  for (int width = 4; width; width /= 2) {
    for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
  }
  return sums[0];
}

// --- any V ---------------------------------------------------------------------------------------------------------

// The first `count` floats, at most as many as V has; zeros behind them. Of 16 floats: rows.h.
template <class V>
V load_upto(const float *x, int64_t count);
template <>
inline float load_upto<float>(const float *x, int64_t) {
  return *x;
}

// 1 / sqrt(mean(x^2) + epsilon). V is 16 floats, or the float that takes the 16 lanes in turn.
template <class V>
inline float inverse_rms(const float *x, int32_t width, float epsilon) {
  constexpr int FLOATS = sizeof(V) / sizeof(float);
  V squares[16 / FLOATS];
  for (V &sum : squares) sum = V(0.0f);
  for (int32_t at = 0; at < width; at += FLOATS) {
    const V v = load_upto<V>(x + at, width - at);
    V &sum = squares[at % 16 / FLOATS];
    sum = fused(v, v, sum);
  }
  float total;
  if constexpr (FLOATS == 1) {
    total = sum_lanes(squares);
  } else {
    total = sum_lanes(squares[0]);
  }
  return 1.0f / square_root(total / float(width) + epsilon);
}

constexpr float ROUNDING = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, to nearest even
inline float rounded(float x) { return (x + ROUNDING) - ROUNDING; }  // |x| < 2^22

// e^x within 2 ulp (Cephes expf). Exactly 0 below -87, where results would turn subnormal, -infinity too; stays at
// e^88.37 above 88.37; a NaN stays a NaN.
template <class V>
inline V exponential(V x) {
  V clamped = smaller(V(88.37f), larger(V(-87.0f), x));
  V shifted = fused(clamped, V(1.44269504f), V(ROUNDING));
  V n = shifted - V(ROUNDING);
  V r = fused(n, V(-0.693359375f), clamped);  // ln 2 in two parts, so that r is exact to 2^-30
  r = fused(n, V(2.12194440e-4f), r);
  V p = fused(V(1.9875691500e-4f), r, V(1.3981999507e-3f));
  p = fused(p, r, V(8.3334519073e-3f));
  p = fused(p, r, V(4.1665795894e-2f));
  p = fused(p, r, V(1.6666665459e-1f));
  p = fused(p, r, V(5.0000001201e-1f));
  p = fused(p, r * r, r) + V(1.0f);
  return select_less(x, V(-87.0f), V(0.0f), p * power_of_two(shifted));
}

// x * sigmoid(x)
template <class V>
inline V silu(V x) {
  return x / (V(1.0f) + exponential(V(0.0f) - x));
}

// x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), written as x * sigmoid(2 ...), which cancels nowhere
template <class V>
inline V gelu_tanh(V x) {
  V inner = fused(x * x * x, V(0.044715f), x);
  return x / (V(1.0f) + exponential(inner * V(-1.5957691216f)));
}

// Cephes tanhf: a polynomial below 0.625, 1 - 2 / (e^2x + 1) above.
template <class V>
inline V hyperbolic_tangent(V x) {
  V magnitude = absolute(x), square = x * x;
  V p = fused(V(-5.70498872745e-3f), square, V(2.06390887954e-2f));
  p = fused(p, square, V(-5.37397155531e-2f));
  p = fused(p, square, V(1.33314422036e-1f));
  p = fused(p, square, V(-3.33332819422e-1f));
  V small = fused(p * square, x, x);
  V large = V(1.0f) - V(2.0f) / (exponential(magnitude + magnitude) + V(1.0f));
  large = select_less(x, V(0.0f), V(0.0f) - large, large);
  return select_less(magnitude, V(0.625f), small, large);
}

}  // namespace
}  // namespace edge
