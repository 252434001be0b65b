// Page moves, rotary and paged attention on NEON.
#include "attention.h"
#include "lanes_neon.h"
#include "tables.h"

namespace edge {
namespace {

// Of many rows, 4 tokens or channels by 16 rows; of few rows, up to 8, 16 tokens and 16 channels at a time.
constexpr int WIDE_COUNT = 4, WIDE_REGISTERS = 1, NARROW_ROWS = 8, NARROW_TOKENS = 1, NARROW_CHANNELS = 1,
              NARROW_SEALED_ROWS = 8;

uint16x8_t magnitudes(const uint16_t *x) { return vandq_u16(vld1q_u16(x), vdupq_n_u16(0x7fff)); }

// 8 magnitudes of fp16 as floats.
void store_finite(uint16x8_t v, float *x) {
  const float16x8_t finite = vreinterpretq_f16_u16(vandq_u16(v, vcltq_u16(v, vdupq_n_u16(0x7c00))));
  vst1q_f32(x, vcvt_f32_f16(vget_low_f16(finite)));
  vst1q_f32(x + 4, vcvt_high_f32_f16(finite));
}

void largest_of_columns(const uint16_t *page, int dim, float *x) {
  uint16x8_t most[4] = {vdupq_n_u16(0), vdupq_n_u16(0), vdupq_n_u16(0), vdupq_n_u16(0)};
  for (int d = 0; d < dim; ++d, page += PAGE_TOKENS) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) most[i] = vmaxq_u16(most[i], magnitudes(page + 8 * i));
  }
  for (int i = 0; i < 4; ++i) store_finite(most[i], x + 8 * i);
}

// A tree over 8 rows: one number a row.
uint16x8_t largest_of_8_rows(const uint16_t *rows, int dim) {
  uint16x8_t most[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i, rows += dim) {
    uint16x8_t other = magnitudes(rows + 8);
    most[i] = magnitudes(rows);
    for (int d = 16; d < dim; d += 16) {
      most[i] = vmaxq_u16(most[i], magnitudes(rows + d));
      other = vmaxq_u16(other, magnitudes(rows + d + 8));
    }
    most[i] = vmaxq_u16(most[i], other);
  }
#pragma GCC unroll 3
  for (int count = 4; count; count /= 2) {
#pragma GCC unroll 4
    for (int i = 0; i < count; ++i) most[i] = vpmaxq_u16(most[2 * i], most[2 * i + 1]);
  }
  return most[0];
}

void largest_of_rows(const uint16_t *page, int dim, float *x) {
  for (int row = 0; row < PAGE_TOKENS; row += 8) store_finite(largest_of_8_rows(page + row * dim, dim), x + row);
}

}  // namespace
}  // namespace edge

#include "attention_narrow_sealed.h"

namespace edge {
namespace {

using SmallProducts = WordProducts;  // of few rows by sealed pages of 4 and 2 bits

}  // namespace
}  // namespace edge

#include "attention_mass.h"
#include "attention_simd.h"
#include "move_simd.h"
#include "page_scores.h"
#include "rotary_simd.h"

namespace edge::neon {

void move(const MoveParams &p) { is_sealed_by_lanes(p) ? move_lanes(p) : plain::move(p); }
void rotary(const RotaryParams &p) { rotary_lanes(p); }
void attend(const AttendParams &p) { is_tiled(p.pages.head_dim) ? attend_tiled(p) : plain::attend(p); }
void merge(const MergeParams &p) { is_tiled(p.head_dim) ? merge_tiled(p) : plain::merge(p); }
void score_pages(const PageScoreParams &p) { is_tiled(p.pages.head_dim) ? score_pages_lanes(p) : plain::score_pages(p); }
void rank(const RankParams &p) { rank_lanes(p); }
void weigh_pages(const MassParams &p) { is_tiled(p.rows.pages.head_dim) ? weigh_pages_lanes(p) : plain::weigh_pages(p); }

}  // namespace edge::neon
