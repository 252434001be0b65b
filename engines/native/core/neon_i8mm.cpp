// Matrix products for NEON with the int8 matrix instructions of ARMv8.6 (Neoverse V1 and N2, Cortex-X2 and A510 on). smmla
// multiplies 2 outputs by 2 rows over 8 inputs, 32 products, twice what sdot does; single rows take dot products, of which
// usdot spares int8 weights the way to signed bytes.
#include "neon_tile.h"
#include "tables.h"

namespace edge {
namespace {

constexpr int MAX_ROWS = 8;

struct Dots {
  static constexpr int INT8_ZERO = 0;
  template <int ROWS>
  static constexpr int REGISTERS = 4;

  template <int KIND, int GROUP, int ROWS, int COUNT>
  static void add(const uint8_t *at, int group, const RowStep *const *rows, int64_t step, int32x4_t dots[ROWS][COUNT]) {
    static_assert(ROWS == 1, "two rows are a pair");
#pragma GCC unroll 2
    for (int half = 0; half < GROUP / 16; ++half) {
      const int8x16_t inputs = vld1q_s8(rows[0][step].quants + 16 * (group + half));
      add_lane<0, KIND, COUNT>(at, group + half, inputs, dots[0]);
      add_lane<1, KIND, COUNT>(at, group + half, inputs, dots[0]);
      add_lane<2, KIND, COUNT>(at, group + half, inputs, dots[0]);
      add_lane<3, KIND, COUNT>(at, group + half, inputs, dots[0]);
    }
  }

 private:
  template <int LANE, int KIND, int COUNT>
  static void add_lane(const uint8_t *at, int half, int8x16_t inputs, int32x4_t dots[COUNT]) {
#pragma GCC unroll 4
    for (int i = 0; i < COUNT; ++i) {
      if constexpr (KIND == WeightKind::int4) {
        dots[i] = vdotq_laneq_s32(dots[i], load_quants<KIND>(at + 16 * i, half, LANE), inputs, LANE);
      } else {
        dots[i] = vusdotq_laneq_s32(dots[i], vld1q_u8(at + 64 * (4 * half + LANE) + 16 * i), inputs, LANE);
      }
    }
  }
};

// Two registers of a strip, zipped: 8 inputs of 2 outputs each, as smmla wants them.
struct OutputPairs {
  uint8x16_t v[2];
};
inline OutputPairs load_pairs(const uint8_t *at, int lane) {
  const uint32x4_t low = vreinterpretq_u32_u8(vld1q_u8(at + 64 * lane));
  const uint32x4_t high = vreinterpretq_u32_u8(vld1q_u8(at + 64 * (lane + 1)));
  return {{vreinterpretq_u8_u32(vzip1q_u32(low, high)), vreinterpretq_u8_u32(vzip2q_u32(low, high))}};
}

// [2 outputs][2 rows] += [2 outputs][8 inputs] by [2 rows][8 inputs]
inline int32x4_t add_int4(int32x4_t dots, uint8x16_t quants, int8x16_t rows) {
  return vmmlaq_s32(dots, vreinterpretq_s8_u8(quants), rows);
}
inline int32x4_t add_int8(int32x4_t dots, uint8x16_t quants, int8x16_t rows) { return vusmmlaq_s32(dots, quants, rows); }

inline int8x16_t load_8_of_both(const int8_t *even, const int8_t *odd) { return vcombine_s8(vld1_s8(even), vld1_s8(odd)); }

// [even, odd, even, odd], as [2 outputs][2 rows]
inline float32x4_t both(float even, float odd) {
  const float32x2_t two = {even, odd};
  return vcombine_f32(two, two);
}
inline int32x4_t both(int32_t even, int32_t odd) {
  const int32x2_t two = {even, odd};
  return vcombine_s32(two, two);
}

// Adds a group's sums of quant * q; int4 nibbles are parted behind the zip, which serves both.
template <int KIND, int GROUP, int PAIRS, int COUNT>
inline void add_pairs(const uint8_t *at, int group, const RowStep *const *rows, int64_t step,
                      int32x4_t dots[PAIRS][2 * COUNT]) {
  constexpr bool BOTH_NIBBLES = KIND == WeightKind::int4 && GROUP == 32;
#pragma GCC unroll 4
  for (int j = 0; j < (BOTH_NIBBLES ? 2 : GROUP / 8); ++j) {
    int8x16_t low_inputs[PAIRS], high_inputs[PAIRS];
    for (int p = 0; p < PAIRS; ++p) {
      const int8_t *even = rows[2 * p][step].quants + 16 * group + 8 * j,
                   *odd = rows[2 * p + 1][step].quants + 16 * group + 8 * j;
      low_inputs[p] = load_8_of_both(even, odd);
      if (BOTH_NIBBLES) high_inputs[p] = load_8_of_both(even + 16, odd + 16);
    }
#pragma GCC unroll 4
    for (int i = 0; i < COUNT; ++i) {
      const OutputPairs pairs = load_pairs(at + 16 * i, KIND == WeightKind::int4 ? 2 * j : 4 * group + 2 * j);
      for (int k = 0; k < 2; ++k) {
        const uint8x16_t low = vandq_u8(pairs.v[k], vdupq_n_u8(15)), high = vshrq_n_u8(pairs.v[k], 4);
#pragma GCC unroll 4
        for (int p = 0; p < PAIRS; ++p) {
          int32x4_t &dot = dots[p][2 * i + k];
          if (KIND == WeightKind::int8) dot = add_int8(dot, pairs.v[k], low_inputs[p]);
          if (KIND == WeightKind::int4) dot = add_int4(dot, GROUP == 16 && group ? high : low, low_inputs[p]);
          if (BOTH_NIBBLES) dot = add_int4(dot, high, high_inputs[p]);
        }
      }
    }
  }
}

// Up to 4 pairs of rows by COUNT registers of a strip from `first` on, as in tile_pass. The last of an odd number of rows is
// its own partner, whose results are dropped.
template <int KIND, int GROUP, bool MINIMA, int ROWS, int COUNT>
__attribute__((noinline)) void pair_pass(const Weight &w, const uint8_t *strip, int64_t ahead, const Rows &x, int64_t row,
                                         int first, float *out) {
  constexpr int GROUPS = STEP / GROUP, PAIRS = (ROWS + 1) / 2;
  constexpr int ZEROS = MINIMA ? 0 : KIND == WeightKind::int4 ? 1 : 16;  // of RowStep's zeros: the zero point
  const int64_t steps = w.inputs / STEP;
  const RowStep *rows[2 * PAIRS];
  for (int r = 0; r < 2 * PAIRS; ++r) rows[r] = x.steps + (row + (r < ROWS ? r : ROWS - 1)) * steps;
  float32x4_t totals[PAIRS][2 * COUNT];
  for (int p = 0; p < PAIRS; ++p) {
    for (int i = 0; i < 2 * COUNT; ++i) totals[p][i] = vdupq_n_f32(0.0f);
  }
  for (int64_t step = 0; step < steps; ++step) {
    if (ahead) prefetch_step<KIND, GROUP, MINIMA>(strip, ahead, step);
#pragma GCC unroll 2
    for (int group = 0; group < GROUPS; ++group) {
      int32x4_t dots[PAIRS][2 * COUNT];
      float32x4_t scales[PAIRS], sums[PAIRS];
#pragma GCC unroll 4
      for (int p = 0; p < PAIRS; ++p) {
        const RowStep &even = rows[2 * p][step], &odd = rows[2 * p + 1][step];
        const int32x4_t zero = GROUP == 16 ? both(even.zeros[group], odd.zeros[group]) : both(even.zero, odd.zero);
        for (int i = 0; i < 2 * COUNT; ++i) dots[p][i] = vmulq_n_s32(zero, ZEROS);
        scales[p] = both(even.scale, odd.scale);
        if (MINIMA) sums[p] = GROUP == 16 ? both(even.sums[group], odd.sums[group]) : both(even.sum, odd.sum);
      }
      add_pairs<KIND, GROUP, PAIRS, COUNT>(strip + step * QUANT_BYTES<KIND> + first * 16, group, rows, step, dots);
#pragma GCC unroll 4
      for (int i = 0; i < COUNT; ++i) {
        const int64_t section = (step * GROUPS + group) * 32 + (first + i) * 8;  // of the scales and minima, bytes
        const float32x4_t four = load_4_halves(strip + w.scales_offset + section);
        const float32x4_t scale[2] = {vzip1q_f32(four, four), vzip2q_f32(four, four)};
        const float32x4_t minima = MINIMA ? load_4_halves(strip + w.minima_offset + section) : four;
        const float32x4_t minimum[2] = {vzip1q_f32(minima, minima), vzip2q_f32(minima, minima)};
        for (int k = 0; k < 2; ++k) {
#pragma GCC unroll 4
          for (int p = 0; p < PAIRS; ++p) {
            float32x4_t &total = totals[p][2 * i + k];
            total = vfmaq_f32(total, vcvtq_f32_s32(dots[p][2 * i + k]), vmulq_f32(scale[k], scales[p]));
            if (MINIMA) total = vfmaq_f32(total, minimum[k], sums[p]);
          }
        }
      }
    }
  }
  for (int r = 0; r < ROWS; ++r) {
    for (int i = 0; i < COUNT; ++i) {
      const float32x4_t low = totals[r / 2][2 * i], high = totals[r / 2][2 * i + 1];
      vst1q_f32(out + r * STRIP + (first + i) * 4, r % 2 ? vuzp2q_f32(low, high) : vuzp1q_f32(low, high));
    }
  }
}

template <int KIND, int GROUP, bool MINIMA, int ROWS>
void quantised_tile(const Weight &w, const uint8_t *strip, int64_t ahead, const Rows &x, int64_t row, float *out) {
  if constexpr (ROWS == 1) {
    tile_of_dots<Dots, KIND, GROUP, MINIMA, ROWS>(w, strip, ahead, x, row, out);
  } else {
    constexpr int COUNT = ROWS <= 4 ? 4 : 2;  // 16 sums
    for (int first = 0; first < 4; first += COUNT) {
      pair_pass<KIND, GROUP, MINIMA, ROWS, COUNT>(w, strip, first ? 0 : ahead, x, row, first, out);
    }
  }
}

}  // namespace

namespace neon_i8mm {
void matmul(const MatmulParams &p) { matmul_strips<MAX_ROWS>(p); }
void gated(const GatedParams &p) { gated_strips<MAX_ROWS>(p); }
}  // namespace neon_i8mm

}  // namespace edge
