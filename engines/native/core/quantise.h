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

inline RowStep &step_of(const Rows &rows, int64_t row, int64_t step) { return rows.steps[row * (rows.inputs / STEP) + step]; }

// All but the quants, whose halves sum to `first` and `second`.
inline void set_step(RowStep &step, float scale, int32_t first, int32_t second) {
  step.scale = scale;
  step.sums[0] = scale * float(first);
  step.sums[1] = scale * float(second);
  step.sum = step.sums[0] + step.sums[1];
  step.zeros[0] = -8 * first;
  step.zeros[1] = -8 * second;
  step.zero = step.zeros[0] + step.zeros[1];
  step.unused = 0;
}

}  // namespace
}  // namespace edge
