// Page moves, rotary and paged attention on AVX-512 with VNNI.
#include "attention.h"
#include "lanes_avx512.h"
#include "tables.h"

namespace edge {
namespace {

// Of many rows, 8 tokens or channels by 32 rows; of few rows, up to 8, 32 tokens and 64 channels at a time.
constexpr int WIDE_COUNT = 8, WIDE_REGISTERS = 2, NARROW_ROWS = 8, NARROW_TOKENS = 2, NARROW_CHANNELS = 4,
              NARROW_SEALED_ROWS = 4;

__m512i magnitudes(const uint16_t *x) { return _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi16(0x7fff)); }

// 32 magnitudes of fp16 as floats.
void store_finite(__m512i v, float *x) {
  const __m512i finite = _mm512_maskz_mov_epi16(_mm512_cmplt_epu16_mask(v, _mm512_set1_epi16(0x7c00)), v);
  _mm512_storeu_ps(x, _mm512_cvtph_ps(_mm512_castsi512_si256(finite)));
  _mm512_storeu_ps(x + 16, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(finite, 1)));
}

void largest_of_columns(const uint16_t *page, int dim, float *x) {
  __m512i even = _mm512_setzero_si512(), odd = even;
  for (int d = 0; d < dim; d += 2, page += 2 * PAGE_TOKENS) {
    even = _mm512_max_epu16(even, magnitudes(page));
    odd = _mm512_max_epu16(odd, magnitudes(page + PAGE_TOKENS));
  }
  store_finite(_mm512_max_epu16(even, odd), x);
}

__m512i largest_of_row(const uint16_t *row, int dim) {
  __m512i v = _mm512_setzero_si512();
  int d = 0;
  for (; d + 32 <= dim; d += 32) v = _mm512_max_epu16(v, magnitudes(row + d));
  if (d == dim) return v;
  const __m256i rest = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(row + d));
  return _mm512_max_epu16(v, _mm512_zextsi256_si512(_mm256_and_si256(rest, _mm256_set1_epi16(0x7fff))));
}

// A tree over 8 rows: every 128 bits of the result hold one number a row, the largest of those 128 bits of the row.
__m512i largest_of_8_rows(const uint16_t *rows, int dim) {
  __m512i twos[4], fours[2];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i a = largest_of_row(rows + 2 * i * dim, dim), b = largest_of_row(rows + (2 * i + 1) * dim, dim);
    twos[i] = _mm512_max_epu16(_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512i a = twos[2 * i], b = twos[2 * i + 1];
    fours[i] = _mm512_max_epu16(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  }
  return _mm512_max_epu16(_mm512_unpacklo_epi64(fours[0], fours[1]), _mm512_unpackhi_epi64(fours[0], fours[1]));
}

void largest_of_rows(const uint16_t *page, int dim, float *x) {
  const __m512i a = largest_of_8_rows(page, dim), b = largest_of_8_rows(page + 8 * dim, dim);
  const __m512i c = largest_of_8_rows(page + 16 * dim, dim), d = largest_of_8_rows(page + 24 * dim, dim);
  const __m512i ab = _mm512_max_epu16(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee));
  const __m512i cd = _mm512_max_epu16(_mm512_shuffle_i64x2(c, d, 0x44), _mm512_shuffle_i64x2(c, d, 0xee));
  store_finite(_mm512_max_epu16(_mm512_shuffle_i64x2(ab, cd, 0x88), _mm512_shuffle_i64x2(ab, cd, 0xdd)), x);
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

namespace edge::avx512vnni {

void move(const MoveParams &p) { is_sealed_by_lanes(p) ? move_lanes(p) : plain::move(p); }
void rotary(const RotaryParams &p) { rotary_lanes(p); }
void attend(const AttendParams &p) { is_tiled(p.pages.head_dim) ? attend_tiled(p) : plain::attend(p); }
void merge(const MergeParams &p) { is_tiled(p.head_dim) ? merge_tiled(p) : plain::merge(p); }
void score_pages(const PageScoreParams &p) { is_tiled(p.pages.head_dim) ? score_pages_lanes(p) : plain::score_pages(p); }
void rank(const RankParams &p) { rank_lanes(p); }
void weigh_pages(const MassParams &p) { is_tiled(p.rows.pages.head_dim) ? weigh_pages_lanes(p) : plain::weigh_pages(p); }

}  // namespace edge::avx512vnni
