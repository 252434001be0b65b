// Kernels for any ARMv8-A processor (Cortex-A53, A57, A72): all of them but attention, which is in attention_neon.cpp. The sets
// above this one bring their own matrix products and take the rest from here.
//
// smlal multiplies signed bytes into 16 bits. int4: eight products of at most 15 * 127 are 15240, so a whole group adds up in
// 16 bits. int8: two of at most 128 * 127 are 32512, which widen at once. Both are exact.
#include "embed.h"
#include "neon_tile.h"
#include "rows.h"
#include "tables.h"

namespace edge {
namespace {

constexpr int MAX_ROWS = 4;  // of more, the repeated activations would serve but one register of outputs each

inline int8x16_t broadcast_4(const int8_t *at) {
  int32_t four;
  memcpy(&four, at, sizeof four);
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

struct Dots {
  static constexpr int INT8_ZERO = 128;
  template <int ROWS>
  static constexpr int REGISTERS = ROWS <= 2 ? 4 : 2;  // two sums each, 16 in all

  template <int KIND, int GROUP, int ROWS, int COUNT>
  static void add(const uint8_t *at, int group, const RowStep *const *rows, int64_t step, int32x4_t dots[ROWS][COUNT]) {
    KIND == WeightKind::int4 ? add_int4<GROUP, ROWS, COUNT>(at, group, rows, step, dots)
                             : add_int8<GROUP, ROWS, COUNT>(at, group, rows, step, dots);
  }

 private:
  template <int GROUP, int ROWS, int COUNT>
  static void add_int4(const uint8_t *at, int group, const RowStep *const *rows, int64_t step, int32x4_t dots[ROWS][COUNT]) {
    int16x8_t low[ROWS][COUNT], high[ROWS][COUNT];  // outputs 0 and 1 of a register, 2 and 3; four sums each
#pragma GCC unroll 8
    for (int j = 0; j < GROUP / 4; ++j) {
      int8x16_t fours[ROWS];
      for (int r = 0; r < ROWS; ++r) fours[r] = broadcast_4(rows[r][step].quants + 16 * group + 4 * j);
#pragma GCC unroll 4
      for (int i = 0; i < COUNT; ++i) {
        const int8x16_t quants = load_quants<WeightKind::int4>(at + 16 * i, group + j / 4, j % 4);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; ++r) {
          const int8x8_t first = vget_low_s8(quants), four = vget_low_s8(fours[r]);
          low[r][i] = j ? vmlal_s8(low[r][i], first, four) : vmull_s8(first, four);
          high[r][i] = j ? vmlal_high_s8(high[r][i], quants, fours[r]) : vmull_high_s8(quants, fours[r]);
        }
      }
    }
    for (int r = 0; r < ROWS; ++r) {
      for (int i = 0; i < COUNT; ++i) {
        dots[r][i] = vaddq_s32(dots[r][i], vpaddq_s32(vpaddlq_s16(low[r][i]), vpaddlq_s16(high[r][i])));
      }
    }
  }

  template <int GROUP, int ROWS, int COUNT>
  static void add_int8(const uint8_t *at, int group, const RowStep *const *rows, int64_t step, int32x4_t dots[ROWS][COUNT]) {
    int32x4_t low[ROWS][COUNT], high[ROWS][COUNT];  // outputs 0 and 1 of a register, 2 and 3; two sums each
    for (int r = 0; r < ROWS; ++r) {
      for (int i = 0; i < COUNT; ++i) low[r][i] = high[r][i] = vdupq_n_s32(0);
    }
#pragma GCC unroll 4
    for (int j = 0; j < GROUP / 4; j += 2) {
      int8x16_t fours[ROWS][2];
      for (int r = 0; r < ROWS; ++r) {
        for (int k = 0; k < 2; ++k) fours[r][k] = broadcast_4(rows[r][step].quants + 16 * group + 4 * (j + k));
      }
#pragma GCC unroll 4
      for (int i = 0; i < COUNT; ++i) {
        const int8x16_t first = load_quants<WeightKind::int8>(at + 16 * i, group + j / 4, j % 4);
        const int8x16_t second = load_quants<WeightKind::int8>(at + 16 * i, group + j / 4, j % 4 + 1);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; ++r) {
          const int16x8_t one = vmull_s8(vget_low_s8(first), vget_low_s8(fours[r][0]));
          low[r][i] = vpadalq_s16(low[r][i], vmlal_s8(one, vget_low_s8(second), vget_low_s8(fours[r][1])));
          const int16x8_t other = vmull_high_s8(first, fours[r][0]);
          high[r][i] = vpadalq_s16(high[r][i], vmlal_high_s8(other, second, fours[r][1]));
        }
      }
    }
    for (int r = 0; r < ROWS; ++r) {
      for (int i = 0; i < COUNT; ++i) dots[r][i] = vaddq_s32(dots[r][i], vpaddq_s32(low[r][i], high[r][i]));
    }
  }
};

template <int KIND, int GROUP, bool MINIMA, int ROWS>
void quantised_tile(const Weight &w, const uint8_t *strip, int64_t ahead, const Rows &x, int64_t row, float *out) {
  tile_of_dots<Dots, KIND, GROUP, MINIMA, ROWS>(w, strip, ahead, x, row, out);
}

}  // namespace

namespace neon {
void norm(const NormParams &p) { norm_rows(p); }
void matmul(const MatmulParams &p) { matmul_strips<MAX_ROWS>(p); }
void gated(const GatedParams &p) { gated_strips<MAX_ROWS>(p); }
void add_norm(const AddNormParams &p) { add_norm_rows(p); }
void embed(const EmbedParams &p) { embed_rows(p); }
void soft_cap(float *x, int64_t count, float cap) { soft_cap_row(x, count, cap); }
}  // namespace neon

}  // namespace edge
