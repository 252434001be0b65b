// The truth: every kernel of kernels.h as plain loops, for any machine. The other instruction sets give these bits.
#include "embed.h"
#include "kernels.h"
#include "math.h"
#include "quantise.h"
#include "tables.h"

namespace edge {
namespace {

void quantise_step(const float *x, RowStep &step) {
  uint32_t largest = 0;
  for (int i = 0; i < STEP; ++i) {
    uint32_t bits = bits_of(absolute(x[i]));
    if (bits > largest) largest = bits;
  }
  const StepScale found = step_scale(largest);
  int32_t sums[2] = {};
  for (int i = 0; i < STEP; ++i) {
    step.quants[i] = found.inverse == 0.0f ? 0 : int8_t((x[i] * found.inverse + ROUNDING) - ROUNDING);
    sums[i / 16] += step.quants[i];
  }
  set_step(step, found.scale, sums[0], sums[1]);
}

// The dot product of one row and one output of a strip, group by group.
float quantised_dot(const Weight &w, const uint8_t *strip, int lane, const Rows &x, int64_t row) {
  const int zero = w.minima_offset ? 0 : w.kind == WeightKind::int4 ? 8 : 128;
  float total = 0.0f;
  for (int64_t group = 0; group < w.inputs / w.group; ++group) {
    const RowStep &step = step_of(x, row, group * w.group / STEP);
    int32_t dot = 0;
    for (int64_t k = group * w.group; k < (group + 1) * w.group; ++k) {
      const int64_t inside = k % STEP;
      int quant;
      if (w.kind == WeightKind::int4) {
        uint8_t both = strip[k / STEP * 256 + inside % 16 / 4 * 64 + lane * 4 + inside % 4];
        quant = inside < 16 ? both & 15 : both >> 4;
      } else {
        quant = strip[k / STEP * 512 + inside / 4 * 64 + lane * 4 + inside % 4];
      }
      dot += (quant - zero) * step.quants[inside];
    }
    const float scale = half_at(strip + w.scales_offset, group * STRIP + lane);
    total = fused(float(dot), scale * step.scale, total);
    if (w.minima_offset) {
      const float minimum = half_at(strip + w.minima_offset, group * STRIP + lane);
      total = fused(minimum, w.group == 16 ? step.sums[group % 2] : step.sum, total);
    }
  }
  return total;
}

float fp16_dot(const Weight &w, const uint8_t *strip, int lane, const float *x) {
  float total = 0.0f;
  for (int64_t k = 0; k < w.inputs; ++k) total = fused(x[k], half_at(strip, k * STRIP + lane), total);
  return total;
}

float dot(const Weight &w, int32_t output, const Rows *quantised, const float *plain, int64_t plain_stride, int64_t row) {
  const uint8_t *strip = w.data + output / STRIP * w.strip_bytes;
  if (w.kind == WeightKind::fp16) return fp16_dot(w, strip, output % STRIP, plain + row * plain_stride);
  return quantised_dot(w, strip, output % STRIP, *quantised, row);
}

int32_t last_output(const Weight &w, int32_t strip_end) {
  return strip_end * STRIP < w.outputs ? strip_end * STRIP : w.outputs;
}

}  // namespace

namespace plain {

void norm(const NormParams &p) {
  for (int64_t row = p.row_begin; row < p.row_end; ++row) {
    const float *x = p.x + row * p.stride;
    const float inverse = p.weight ? inverse_rms<float>(x, p.width, p.epsilon) : 1.0f;
    for (int64_t at = 0; at < p.width; at += STEP) {
      float y[STEP] = {};
      for (int64_t i = 0; i < STEP && at + i < p.width; ++i) {
        y[i] = p.weight ? x[at + i] * inverse * p.weight[at + i] : x[at + i];
      }
      if (p.plain) memcpy(p.plain + row * p.plain_stride + at, y, sizeof y);
      if (p.quantised) quantise_step(y, step_of(*p.quantised, row, at / STEP));
    }
  }
}

void matmul(const MatmulParams &p) {
  for (int64_t row = p.row_begin; row < p.row_end; ++row) {
    for (int32_t output = p.strip_begin * STRIP; output < last_output(*p.weight, p.strip_end); ++output) {
      const float result = dot(*p.weight, output, p.quantised, p.plain, p.plain_stride, row);
      float *y = p.y + row * p.y_stride + output;
      *y = p.add ? *y + result : result;
    }
  }
}

void gated(const GatedParams &p) {
  for (int64_t row = p.row_begin; row < p.row_end; ++row) {
    for (int32_t output = p.strip_begin * STRIP; output < last_output(*p.gate, p.strip_end); ++output) {
      float gate = dot(*p.gate, output, p.quantised, p.plain, p.plain_stride, row);
      if (p.activation == Activation::silu) gate = silu(gate);
      if (p.activation == Activation::gelu_tanh) gate = gelu_tanh(gate);
      p.y[row * p.y_stride + output] = gate * dot(*p.up, output, p.quantised, p.plain, p.plain_stride, row);
    }
  }
}

void add_norm(const AddNormParams &p) {
  for (int64_t row = p.row_begin; row < p.row_end; ++row) {
    const float *x = p.x + row * p.x_stride;
    const float inverse = inverse_rms<float>(x, p.width, p.epsilon);
    for (int64_t i = 0; i < p.width; ++i) p.h[row * p.h_stride + i] += x[i] * inverse * p.weight[i];
  }
}

void embed(const EmbedParams &p) { embed_rows(p); }

void soft_cap(float *x, int64_t count, float cap) {
  for (int64_t i = 0; i < count; ++i) x[i] = cap * hyperbolic_tangent(x[i] / cap);
}

}  // namespace plain
}  // namespace edge
