// Kernels that work along rows, for any `Lanes`: include it behind a lanes_*.h, in files built for that instruction set.
#pragma once
#include "kernels.h"
#include "math.h"
#include "quantise.h"

namespace edge {
namespace {

// The first `count` floats (at least 1), at most 16.
template <>
inline Lanes load_upto<Lanes>(const float *x, int64_t count) {
  return count < 16 ? Lanes::load_first(x, int(count)) : Lanes::load(x);
}
inline void store_upto(Lanes v, float *x, int64_t count) { count < 16 ? v.store_first(x, int(count)) : v.store(x); }

// 16 floats from x + at, zeros where the row of `width` ends.
inline Lanes load_row(const float *x, int64_t at, int64_t width) {
  return at < width ? load_upto<Lanes>(x + at, width - at) : Lanes(0.0f);
}

inline void quantise_step(Lanes first, Lanes second, RowStep &step) {
  StepScale found = step_scale(largest_magnitude_bits(first, second));
  if (found.inverse == 0.0f) {
    memset(step.quants, 0, STEP);
    set_step(step, found.scale, 0, 0);
    return;
  }
  Lanes inverse(found.inverse);
  int32_t sum = store_int8(first * inverse, step.quants);
  set_step(step, found.scale, sum, store_int8(second * inverse, step.quants + 16));
}

inline void norm_rows(const NormParams &p) {
  for (int64_t row = p.row_begin; row < p.row_end; ++row) {
    const float *x = p.x + row * p.stride;
    Lanes inverse(p.weight ? inverse_rms<Lanes>(x, p.width, p.epsilon) : 1.0f);
    for (int64_t at = 0; at < p.width; at += STEP) {
      Lanes first = load_row(x, at, p.width), second = load_row(x, at + 16, p.width);
      if (p.weight) {
        first = first * inverse * load_row(p.weight, at, p.width);
        second = second * inverse * load_row(p.weight, at + 16, p.width);
      }
      if (p.plain) {
        first.store(p.plain + row * p.plain_stride + at);
        second.store(p.plain + row * p.plain_stride + at + 16);
      }
      if (p.quantised) quantise_step(first, second, step_of(*p.quantised, row, at / STEP));
    }
  }
}

inline void add_norm_rows(const AddNormParams &p) {
  for (int64_t row = p.row_begin; row < p.row_end; ++row) {
    const float *x = p.x + row * p.x_stride;
    float *h = p.h + row * p.h_stride;
    Lanes inverse(inverse_rms<Lanes>(x, p.width, p.epsilon));
    for (int64_t at = 0; at < p.width; at += 16) {
      Lanes sum = load_row(h, at, p.width) + load_row(x, at, p.width) * inverse * load_row(p.weight, at, p.width);
      store_upto(sum, h + at, p.width - at);
    }
  }
}

inline void soft_cap_row(float *x, int64_t count, float cap) {
  for (int64_t at = 0; at < count; at += 16) {
    Lanes capped = Lanes(cap) * hyperbolic_tangent(load_row(x, at, count) / Lanes(cap));
    store_upto(capped, x + at, count - at);
  }
}

}  // namespace
}  // namespace edge
