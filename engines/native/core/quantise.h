// The one rule by which 32 activations become int8: x = scale * q, scale = largest magnitude / 127, q to nearest even.
#pragma once
#include "kernels.h"
#include "math.h"

namespace edge {
namespace {

struct StepScale {
  float scale;    // NaN where an input is not finite: a broken input shows in every output that reads it
  float inverse;  // 127 / largest magnitude; 0 where the quants are to be 0
};

// From the largest bit pattern of the 32 magnitudes.
inline StepScale step_scale(uint32_t magnitude_bits) {
  if (magnitude_bits >= 0x7f800000u) return {float_of(0x7fc00000u), 0.0f};
  float largest = float_of(magnitude_bits);
  if (largest < 0x1p-100f) return {0.0f, 0.0f};  // 127 / largest could overflow
  return {largest / 127.0f, 127.0f / largest};
}

// Sets the scale and, for both halves, the sums of a step whose quants sum to `first` and `second`.
inline void set_step(const Rows &rows, int64_t row, int64_t step, float scale, int32_t first, int32_t second) {
  int64_t at = row * (rows.inputs / STEP) + step;
  rows.scales[at] = scale;
  rows.isums[2 * at] = first;
  rows.isums[2 * at + 1] = second;
  rows.sums[2 * at] = scale * float(first);
  rows.sums[2 * at + 1] = scale * float(second);
}

}  // namespace
}  // namespace edge
