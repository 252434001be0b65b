// Kernels for AVX2 without VNNI. A register holds 8 outputs by 4 inputs of a strip, half of each 64 bytes.
//
// vpmaddubsw multiplies unsigned by signed bytes and saturates sums of two at 16 bits. int4: 15 * 127 * 2 products, eight of
// them, are at most 30480: a whole group adds up in 16 bits. int8: |w - 128| <= 128 and q <= 127 with the sign of w - 128
// moved over to q: at most 2 * 128 * 127 = 32512, which widens at once. Both are exact.
#include "embed.h"
#include "lanes_avx2.h"
#include "rows.h"
#include "strips.h"
#include "tables.h"

namespace edge {
namespace {

// Per tile: 3 and 4 rows of int4 measured 200 GOPS a core, 6 rows 185, 8 rows 170: the sums of 4 fill the 16 registers.
constexpr int MAX_ROWS = 4;

inline __m256i load_32(const uint8_t *at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(at)); }

inline __m256 load_8_halves(const uint8_t *at) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(at)));
}

// dots[half][r] = sums of quant * q over a group, for outputs 0 to 7 and 8 to 15; `at`: the step's quants.
template <int GROUP, int ROWS>
inline void int4_dots(const uint8_t *at, int group, const RowStep *const *rows, int64_t step, __m256i dots[2][ROWS]) {
  const __m256i low = _mm256_set1_epi8(15);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m256i both[2] = {load_32(at + 64 * j), load_32(at + 64 * j + 32)};
#pragma GCC unroll 2
    for (int nibble = 0; nibble < 2; ++nibble) {  // low: inputs 0 to 15 of the step
      if (GROUP == 16 && nibble != group) continue;
      __m256i quants[2];
      for (int half = 0; half < 2; ++half) {
        quants[half] = _mm256_and_si256(nibble ? _mm256_srli_epi16(both[half], 4) : both[half], low);
      }
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) {
        const __m256i four = broadcast_4(rows[r][step].quants + nibble * 16 + 4 * j);
        dots[0][r] = add_products(dots[0][r], quants[0], four);
        dots[1][r] = add_products(dots[1][r], quants[1], four);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
    dots[0][r] = add_pairs(dots[0][r]);
    dots[1][r] = add_pairs(dots[1][r]);
  }
}

// The same for int8, of quant - 128.
template <int GROUP, int ROWS>
inline void int8_dots(const uint8_t *at, int group, const RowStep *const *rows, int64_t step, __m256i dots[2][ROWS]) {
#pragma GCC unroll 8
  for (int j = 0; j < GROUP / 4; ++j) {
    __m256i quants[2], magnitudes[2];
    for (int half = 0; half < 2; ++half) {
      quants[half] = _mm256_xor_si256(load_32(at + 64 * (group * 4 + j) + 32 * half), _mm256_set1_epi8(-128));
      magnitudes[half] = _mm256_abs_epi8(quants[half]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const __m256i four = broadcast_4(rows[r][step].quants + group * 16 + 4 * j);
      for (int half = 0; half < 2; ++half) {
        const __m256i pairs = _mm256_maddubs_epi16(magnitudes[half], _mm256_sign_epi8(four, quants[half]));
        dots[half][r] = _mm256_add_epi32(dots[half][r], add_pairs(pairs));
        asm("" : "+x"(dots[half][r]));
      }
    }
  }
}

template <int KIND, int GROUP, bool MINIMA, int ROWS>
void quantised_tile(const Weight &w, const uint8_t *strip, int64_t ahead, const Rows &x, int64_t row, float *out) {
  constexpr int QUANT_BYTES = KIND == WeightKind::int4 ? 256 : 512, GROUPS = STEP / GROUP;  // a step
  constexpr int STEP_BYTES = QUANT_BYTES + GROUPS * 32 * (MINIMA ? 2 : 1);
  // What the dots leave out, as a multiple of RowStep's zeros: 8 for int4 without minima; int8 dots are of quant - 128, which
  // minima want back.
  constexpr int ZEROS = KIND == WeightKind::int4 ? (MINIMA ? 0 : 1) : (MINIMA ? -16 : 0);
  const int64_t steps = w.inputs / STEP;

  __m256 totals[2][ROWS];  // outputs 0 to 7, 8 to 15
  const RowStep *rows[ROWS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
    rows[r] = x.steps + (row + r) * steps;
    totals[0][r] = totals[1][r] = _mm256_setzero_ps();
  }
  for (int64_t step = 0; step < steps; ++step) {
    if (ahead) {
      const char *next = reinterpret_cast<const char *>(strip) + ahead + step * STEP_BYTES;
#pragma GCC unroll 10
      for (int line = 0; line < STEP_BYTES; line += 64) _mm_prefetch(next + line, _MM_HINT_T1);
    }
#pragma GCC unroll 2
    for (int group = 0; group < GROUPS; ++group) {
      __m256i dots[2][ROWS];
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) dots[0][r] = dots[1][r] = _mm256_setzero_si256();
      const uint8_t *at = strip + step * QUANT_BYTES;
      if constexpr (KIND == WeightKind::int4) {
        int4_dots<GROUP, ROWS>(at, group, rows, step, dots);
      } else {
        int8_dots<GROUP, ROWS>(at, group, rows, step, dots);
      }
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const int64_t section = (step * GROUPS + group) * 32 + half * 16;  // of the scales and minima, bytes
        const __m256 scale = load_8_halves(strip + w.scales_offset + section);
        const __m256 minimum = MINIMA ? load_8_halves(strip + w.minima_offset + section) : _mm256_setzero_ps();
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) {
          const RowStep &inputs = rows[r][step];
          __m256i dot = dots[half][r];
          if (ZEROS) {
            const int32_t zero = GROUP == 16 ? inputs.zeros[group] : inputs.zero;
            dot = _mm256_add_epi32(dot, _mm256_set1_epi32(ZEROS * zero));
          }
          const __m256 factor = _mm256_mul_ps(scale, _mm256_set1_ps(inputs.scale));
          totals[half][r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), factor, totals[half][r]);
          if (MINIMA) {
            const float sum = GROUP == 16 ? inputs.sums[group] : inputs.sum;
            totals[half][r] = _mm256_fmadd_ps(minimum, _mm256_set1_ps(sum), totals[half][r]);
          }
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) Lanes(totals[0][r], totals[1][r]).store(out + r * STRIP);
}

}  // namespace

namespace avx2 {
void norm(const NormParams &p) { norm_rows(p); }
void matmul(const MatmulParams &p) { matmul_strips<MAX_ROWS>(p); }
void gated(const GatedParams &p) { gated_strips<MAX_ROWS>(p); }
void add_norm(const AddNormParams &p) { add_norm_rows(p); }
void embed(const EmbedParams &p) { embed_rows(p); }
void soft_cap(float *x, int64_t count, float cap) { soft_cap_row(x, count, cap); }
}  // namespace avx2

}  // namespace edge
