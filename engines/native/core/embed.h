// Single rows out of the strip layout, for every instruction set: plain loops, as a row is a few hundred numbers.
#pragma once
#include "kernels.h"
#include "math.h"

namespace edge {
namespace {

inline float half_at(const uint8_t *data, int64_t index) {
  uint16_t half;
  memcpy(&half, data + 2 * index, sizeof half);
  return half_to_float(half);
}

// Output `output` of a matrix, dequantised and times `factor`, to y [inputs] without the padding behind `width`.
inline void embed_row(const Weight &w, int32_t output, float factor, float *y, int64_t width) {
  const uint8_t *strip = w.data + output / STRIP * w.strip_bytes;
  const int lane = output % STRIP;
  for (int64_t k = 0; k < width; ++k) {
    if (w.kind == WeightKind::fp16) {
      y[k] = factor * half_at(strip, k * STRIP + lane);
      continue;
    }
    const int64_t step = k / STEP, group = k / w.group * STRIP + lane;
    const int inside = int(k % STEP);
    int quant;
    if (w.kind == WeightKind::int4) {
      uint8_t byte = strip[step * 256 + inside % 16 / 4 * 64 + lane * 4 + inside % 4];
      quant = inside < 16 ? byte & 15 : byte >> 4;
    } else {
      quant = strip[step * 512 + inside / 4 * 64 + lane * 4 + inside % 4];
    }
    float scale = half_at(strip + w.scales_offset, group);
    if (w.minima_offset) {
      y[k] = factor * fused(scale, float(quant), half_at(strip + w.minima_offset, group));
    } else {
      y[k] = factor * (scale * float(quant - (w.kind == WeightKind::int4 ? 8 : 128)));
    }
  }
}

inline void embed_rows(const EmbedParams &p) {
  int64_t width = p.y_stride < p.table->inputs ? p.y_stride : p.table->inputs;
  for (int32_t row = p.row_begin; row < p.row_end; ++row) {
    embed_row(*p.table, p.tokens[row], p.scale, p.y + row * p.y_stride, width);
  }
}

}  // namespace
}  // namespace edge
