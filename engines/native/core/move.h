// Formulas of page moves (edge/contract.py, "page moves"); V as in math.h. Anonymous for the reason given there.
#pragma once
#include "kernels.h"
#include "math.h"
#include "page_format.h"

namespace edge {
namespace {

// Scale and minimum of numbers between `low` and `high`, as halves.
struct Quantiser {
  uint16_t scale, minimum;
};
inline Quantiser quantiser_of(float low, float high, int bits) {
  const float steps = float((1 << bits) - 1);
  const uint16_t minimum = float_to_half(low + 0.0f);  // + 0: which of two zeros is the smallest is a matter of order
  const float spread = larger(high - half_to_float(minimum), 0.0f);
  const uint16_t scale = float_to_half(spread / steps);
  return {uint16_t(scale + (half_to_float(scale) * steps < spread)), minimum};
}

// The value of x as the low bits of a float's bits. A NaN gives 0.
template <class V>
inline V value_of(V x, V scale, V minimum, V steps) {
  return smaller(larger((x - minimum) / scale, V(0.0f)), steps) + V(ROUNDING);
}

// Of K, int8 to int4.
inline uint16_t high_nibble_minimum(uint16_t scale, uint16_t minimum) {
  return float_to_half(half_to_float(minimum) + 7.5f * half_to_float(scale));
}
inline uint16_t high_nibble_scale(uint16_t scale) { return float_to_half(16.0f * half_to_float(scale)); }

}  // namespace
}  // namespace edge
