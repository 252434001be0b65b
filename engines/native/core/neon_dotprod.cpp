// Matrix products for NEON with the dot products of ARMv8.2 (Cortex-A55 and A75 on, so also the A78AE of Jetson Orin). One sdot
// adds 16 products: of 4 outputs and 4 inputs, which a lane of the activations' register brings.
#include "neon_tile.h"
#include "tables.h"

namespace edge {
namespace {

constexpr int MAX_ROWS = 8;

struct Dots {
  static constexpr int INT8_ZERO = 128;
  template <int ROWS>
  static constexpr int REGISTERS = ROWS <= 4 ? 4 : 2;  // 16 sums

  template <int KIND, int GROUP, int ROWS, int COUNT>
  static void add(const uint8_t *at, int group, const RowStep *const *rows, int64_t step, int32x4_t dots[ROWS][COUNT]) {
#pragma GCC unroll 2
    for (int half = 0; half < GROUP / 16; ++half) {
      int8x16_t inputs[ROWS];
      for (int r = 0; r < ROWS; ++r) inputs[r] = vld1q_s8(rows[r][step].quants + 16 * (group + half));
      add_lane<0, KIND, ROWS, COUNT>(at, group + half, inputs, dots);
      add_lane<1, KIND, ROWS, COUNT>(at, group + half, inputs, dots);
      add_lane<2, KIND, ROWS, COUNT>(at, group + half, inputs, dots);
      add_lane<3, KIND, ROWS, COUNT>(at, group + half, inputs, dots);
    }
  }

 private:
  template <int LANE, int KIND, int ROWS, int COUNT>
  static void add_lane(const uint8_t *at, int half, const int8x16_t inputs[ROWS], int32x4_t dots[ROWS][COUNT]) {
#pragma GCC unroll 4
    for (int i = 0; i < COUNT; ++i) {
      const int8x16_t quants = load_quants<KIND>(at + 16 * i, half, LANE);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) dots[r][i] = vdotq_laneq_s32(dots[r][i], quants, inputs[r], LANE);
    }
  }
};

template <int KIND, int GROUP, bool MINIMA, int ROWS>
void quantised_tile(const Weight &w, const uint8_t *strip, int64_t ahead, const Rows &x, int64_t row, float *out) {
  tile_of_dots<Dots, KIND, GROUP, MINIMA, ROWS>(w, strip, ahead, x, row, out);
}

}  // namespace

namespace neon_dotprod {
void matmul(const MatmulParams &p) { matmul_strips<MAX_ROWS>(p); }
void gated(const GatedParams &p) { gated_strips<MAX_ROWS>(p); }
}  // namespace neon_dotprod

}  // namespace edge
