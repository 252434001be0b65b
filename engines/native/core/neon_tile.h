// The tile of strips.h for int4 and int8 weights on NEON, around a dot product of bytes. A register holds 4 outputs by 4 inputs
// of a strip, a quarter of each 64 bytes. Dots:
//   static constexpr int INT8_ZERO;                      // what `add` takes off int8 quants: 128 for signed bytes, 0 for
//   unsigned template <int ROWS> static constexpr int REGISTERS;  // of a strip's 4, summed at a time: so many that sums stay
//   in registers
//   // dots[r][i] += sums of quant * q over a group, of row r and the 4 outputs of register i. `at`: the step's quants in the
//   // first of these registers; rows[r][step]: the activations.
//   template <int KIND, int GROUP, int ROWS, int COUNT>
//   static void add(const uint8_t *at, int group, const RowStep *const *rows, int64_t step, int32x4_t dots[ROWS][COUNT]);
#pragma once
#include "lanes_neon.h"
#include "strips.h"

namespace edge {
namespace {

// Bytes of a step's quants, and of all that a step has in a strip.
template <int KIND>
constexpr int QUANT_BYTES = KIND == WeightKind::int4 ? 256 : 512;
template <int KIND, int GROUP, bool MINIMA>
constexpr int STEP_BYTES = QUANT_BYTES<KIND> + STEP / GROUP * 32 * (MINIMA ? 2 : 1);

template <int KIND, int GROUP, bool MINIMA>
inline void prefetch_step(const uint8_t *strip, int64_t ahead, int64_t step) {
  const uint8_t *next = strip + ahead + step * STEP_BYTES<KIND, GROUP, MINIMA>;
#pragma GCC unroll 10
  for (int line = 0; line < STEP_BYTES<KIND, GROUP, MINIMA>; line += 64) __builtin_prefetch(next + line, 0, 2);
}

// Signed quants of a register, `lane` (0 to 3) of `half` (0: inputs 0 to 15) of a step: int4 as they are, int8 less 128.
template <int KIND>
inline int8x16_t load_quants(const uint8_t *at, int half, int lane) {
  if constexpr (KIND == WeightKind::int4) {
    const uint8x16_t both = vld1q_u8(at + 64 * lane);
    return vreinterpretq_s8_u8(half ? vshrq_n_u8(both, 4) : vandq_u8(both, vdupq_n_u8(15)));
  } else {
    return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(at + 64 * (4 * half + lane)), vdupq_n_u8(128)));
  }
}

inline float32x4_t load_4_halves(const uint8_t *at) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t *>(at))));
}

// The outputs of registers `first` to `first` + COUNT of a strip. Not inlined: GCC would run the passes of a tile as one and
// spill the sums.
template <class Dots, int KIND, int GROUP, bool MINIMA, int ROWS, int COUNT>
__attribute__((noinline)) void tile_pass(const Weight &w, const uint8_t *strip, int64_t ahead, const Rows &x, int64_t row,
                                         int first, float *out) {
  constexpr int GROUPS = STEP / GROUP;
  // What the dots leave out, as a multiple of RowStep's zeros, -8 * sum: 8 for int4 without minima; of int8 what `add` does not
  // take off, or takes off and minima want back.
  constexpr int ZEROS = KIND == WeightKind::int4 ? !MINIMA : (MINIMA ? 0 : 16) - Dots::INT8_ZERO / 8;
  const int64_t steps = w.inputs / STEP;
  const RowStep *rows[ROWS];
  float32x4_t totals[ROWS][COUNT];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
    rows[r] = x.steps + (row + r) * steps;
    for (int i = 0; i < COUNT; ++i) totals[r][i] = vdupq_n_f32(0.0f);
  }
  for (int64_t step = 0; step < steps; ++step) {
    if (ahead) prefetch_step<KIND, GROUP, MINIMA>(strip, ahead, step);
#pragma GCC unroll 2
    for (int group = 0; group < GROUPS; ++group) {
      int32x4_t dots[ROWS][COUNT];
      for (int r = 0; r < ROWS; ++r) {
        const RowStep &inputs = rows[r][step];
        const int32_t zero = !ZEROS ? 0 : ZEROS * (GROUP == 16 ? inputs.zeros[group] : inputs.zero);
        for (int i = 0; i < COUNT; ++i) dots[r][i] = vdupq_n_s32(zero);
      }
      Dots::template add<KIND, GROUP, ROWS, COUNT>(strip + step * QUANT_BYTES<KIND> + first * 16, group, rows, step, dots);
#pragma GCC unroll 4
      for (int i = 0; i < COUNT; ++i) {
        const int64_t section = (step * GROUPS + group) * 32 + (first + i) * 8;  // of the scales and minima, bytes
        const float32x4_t scale = load_4_halves(strip + w.scales_offset + section);
        const float32x4_t minimum = MINIMA ? load_4_halves(strip + w.minima_offset + section) : vdupq_n_f32(0.0f);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) {
          const RowStep &inputs = rows[r][step];
          totals[r][i] = vfmaq_f32(totals[r][i], vcvtq_f32_s32(dots[r][i]), vmulq_n_f32(scale, inputs.scale));
          if (MINIMA) totals[r][i] = vfmaq_n_f32(totals[r][i], minimum, GROUP == 16 ? inputs.sums[group] : inputs.sum);
        }
      }
    }
  }
  for (int r = 0; r < ROWS; ++r) {
    for (int i = 0; i < COUNT; ++i) vst1q_f32(out + r * STRIP + (first + i) * 4, totals[r][i]);
  }
}

// A whole tile.
template <class Dots, int KIND, int GROUP, bool MINIMA, int ROWS>
void tile_of_dots(const Weight &w, const uint8_t *strip, int64_t ahead, const Rows &x, int64_t row, float *out) {
  constexpr int COUNT = Dots::template REGISTERS<ROWS>;
  for (int first = 0; first < 4; first += COUNT) {
    tile_pass<Dots, KIND, GROUP, MINIMA, ROWS, COUNT>(w, strip, first ? 0 : ahead, x, row, first, out);
  }
}

}  // namespace
}  // namespace edge
