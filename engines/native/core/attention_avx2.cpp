// Page moves, rotary and paged attention on AVX2.
#include "attention.h"
#include "lanes_avx2.h"
#include "tables.h"

namespace edge {
namespace {

// Of many rows, 4 tokens or channels by 16 rows; of few rows, up to 8, 16 tokens and 32 channels at a time.
constexpr int WIDE_COUNT = 4, WIDE_REGISTERS = 1, NARROW_ROWS = 8, NARROW_TOKENS = 1, NARROW_CHANNELS = 2,
              NARROW_SEALED_ROWS = 2;

__m256i magnitudes(const uint16_t *x) {
  return _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(x)), _mm256_set1_epi16(0x7fff));
}

// 16 magnitudes of fp16 as floats.
void store_finite(__m256i v, float *x) {
  const __m256i finite = _mm256_and_si256(v, _mm256_cmpgt_epi16(_mm256_set1_epi16(0x7c00), v));
  _mm256_storeu_ps(x, _mm256_cvtph_ps(_mm256_castsi256_si128(finite)));
  _mm256_storeu_ps(x + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(finite, 1)));
}

void largest_of_columns(const uint16_t *page, int dim, float *x) {
  __m256i low = _mm256_setzero_si256(), high = low;
  for (int d = 0; d < dim; ++d, page += PAGE_TOKENS) {
    low = _mm256_max_epu16(low, magnitudes(page));
    high = _mm256_max_epu16(high, magnitudes(page + 16));
  }
  store_finite(low, x);
  store_finite(high, x + 16);
}

// A tree over 8 rows: both 128 bits of the result hold one number a row, the largest of those 128 bits of the row.
__m256i largest_of_8_rows(const uint16_t *rows, int dim) {
  __m256i ones[8], twos[4], fours[2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i, rows += dim) {
    ones[i] = magnitudes(rows);
    for (int d = 16; d < dim; d += 16) ones[i] = _mm256_max_epu16(ones[i], magnitudes(rows + d));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256i a = ones[2 * i], b = ones[2 * i + 1];
    twos[i] = _mm256_max_epu16(_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m256i a = twos[2 * i], b = twos[2 * i + 1];
    fours[i] = _mm256_max_epu16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  }
  return _mm256_max_epu16(_mm256_unpacklo_epi64(fours[0], fours[1]), _mm256_unpackhi_epi64(fours[0], fours[1]));
}

void largest_of_rows(const uint16_t *page, int dim, float *x) {
  for (int row = 0; row < PAGE_TOKENS; row += 16) {
    const __m256i a = largest_of_8_rows(page + row * dim, dim), b = largest_of_8_rows(page + (row + 8) * dim, dim);
    store_finite(_mm256_max_epu16(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31)), x + row);
  }
}

}  // namespace
}  // namespace edge

#include "attention_narrow_bytes.h"

namespace edge {
namespace {

using SmallProducts = ByteProducts;  // of few rows by sealed pages of 4 and 2 bits

}  // namespace
}  // namespace edge

#include "attention_mass.h"
#include "attention_simd.h"
#include "move_simd.h"
#include "page_scores.h"
#include "rotary_simd.h"

namespace edge::avx2 {

void move(const MoveParams &p) { is_sealed_by_lanes(p) ? move_lanes(p) : plain::move(p); }
void rotary(const RotaryParams &p) { rotary_lanes(p); }
void attend(const AttendParams &p) { is_tiled(p.pages.head_dim) ? attend_tiled(p) : plain::attend(p); }
void merge(const MergeParams &p) { is_tiled(p.head_dim) ? merge_tiled(p) : plain::merge(p); }
void score_pages(const PageScoreParams &p) { is_tiled(p.pages.head_dim) ? score_pages_lanes(p) : plain::score_pages(p); }
void rank(const RankParams &p) { rank_lanes(p); }
void weigh_pages(const MassParams &p) { is_tiled(p.rows.pages.head_dim) ? weigh_pages_lanes(p) : plain::weigh_pages(p); }

}  // namespace edge::avx2
