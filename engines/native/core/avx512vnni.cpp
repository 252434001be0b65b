// Kernels for AVX-512 with VNNI. A register holds 16 outputs by 4 inputs of a strip, so that one vpdpbusd against 4 broadcast
// activations adds 64 products; its sums of int32 do not saturate.
#include "embed.h"
#include "lanes_avx512.h"
#include "rows.h"
#include "strips.h"
#include "tables.h"

namespace edge {
namespace {

constexpr int MAX_ROWS = 8;  // a tile; 4 to 16 rows measured within 3 %, 2 rows 15 % below

inline __m512i broadcast_4(const void *at) {
  int32_t four;
  memcpy(&four, at, sizeof four);
  return _mm512_set1_epi32(four);
}

// The 8 registers of 32 inputs: register j holds inputs 4 j to 4 j + 3.
template <int KIND>
inline void load_quants(const uint8_t *at, __m512i quants[8]) {
  if constexpr (KIND == WeightKind::int4) {
    const __m512i low = _mm512_set1_epi8(15);
    for (int j = 0; j < 4; ++j) {
      __m512i both = _mm512_loadu_si512(at + 64 * j);
      quants[j] = _mm512_and_si512(both, low);
      quants[j + 4] = _mm512_and_si512(_mm512_srli_epi32(both, 4), low);
    }
  } else {
    for (int j = 0; j < 8; ++j) quants[j] = _mm512_loadu_si512(at + 64 * j);
  }
}

// -zero * isum of `count` neighbouring sums: vpdpwssd multiplies the low 16 bits, which hold a sum of 16 quants.
template <int KIND>
inline __m512i zero_point(const int32_t *isums, int count) {
  const __m512i minus_zero = _mm512_set1_epi32(uint16_t(KIND == WeightKind::int4 ? -8 : -128));
  __m512i start = _mm512_setzero_si512();
  for (int i = 0; i < count; ++i) start = _mm512_dpwssd_epi32(start, minus_zero, broadcast_4(isums + i));
  return start;
}

template <int KIND, int GROUP, bool MINIMA, int ROWS>
void quantised_tile(const Weight &w, const uint8_t *strip, int64_t ahead, const Rows &x, int64_t row, float *out) {
  constexpr int QUANT_BYTES = KIND == WeightKind::int4 ? 256 : 512, GROUPS = STEP / GROUP;  // a step
  constexpr int STEP_BYTES = QUANT_BYTES + GROUPS * 32 * (MINIMA ? 2 : 1);
  const int64_t inputs = w.inputs, steps = inputs / STEP;
  const int8_t *quants = x.quants + row * inputs;
  const float *scales = x.scales + row * steps, *sums = x.sums + row * steps * 2;
  const int32_t *isums = x.isums + row * steps * 2;
  const uint16_t *weight_scales = reinterpret_cast<const uint16_t *>(strip + w.scales_offset);
  const uint16_t *weight_minima = reinterpret_cast<const uint16_t *>(strip + w.minima_offset);

  Lanes totals[ROWS];
  for (int r = 0; r < ROWS; ++r) totals[r] = Lanes(0.0f);
  for (int64_t step = 0; step < steps; ++step) {
    if (ahead) {
      const char *next = reinterpret_cast<const char *>(strip) + ahead + step * STEP_BYTES;
#pragma GCC unroll 10
      for (int line = 0; line < STEP_BYTES; line += 64) _mm_prefetch(next + line, _MM_HINT_T1);
    }
    __m512i weights[8];
    load_quants<KIND>(strip + step * QUANT_BYTES, weights);
#pragma GCC unroll 2
    for (int group = 0; group < GROUPS; ++group) {
      const Lanes scale = Lanes::load_half(weight_scales + (step * GROUPS + group) * STRIP);
      const Lanes minimum = MINIMA ? Lanes::load_half(weight_minima + (step * GROUPS + group) * STRIP) : Lanes(0.0f);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) {
        const int64_t at = (r * steps + step) * 2 + group;  // of the first sum of 16
        __m512i dot = MINIMA ? _mm512_setzero_si512() : zero_point<KIND>(isums + at, GROUP / 16);
#pragma GCC unroll 8
        for (int j = 0; j < GROUP / 4; ++j) {
          dot = _mm512_dpbusd_epi32(dot, weights[group * 4 + j],
                                    broadcast_4(quants + r * inputs + step * STEP + group * 16 + j * 4));
        }
        totals[r] = fused(Lanes(_mm512_cvtepi32_ps(dot)), scale * Lanes(scales[r * steps + step]), totals[r]);
        if (MINIMA) totals[r] = fused(minimum, Lanes(GROUP == 16 ? sums[at] : sums[at] + sums[at + 1]), totals[r]);
      }
    }
  }
  for (int r = 0; r < ROWS; ++r) totals[r].store(out + r * STRIP);
}

}  // namespace

namespace avx512vnni {
void norm(const NormParams &p) { norm_rows(p); }
void matmul(const MatmulParams &p) { matmul_strips<MAX_ROWS>(p); }
void gated(const GatedParams &p) { gated_strips<MAX_ROWS>(p); }
void add_norm(const AddNormParams &p) { add_norm_rows(p); }
void embed(const EmbedParams &p) { embed_rows(p); }
void soft_cap(float *x, int64_t count, float cap) { soft_cap_row(x, count, cap); }
}  // namespace avx512vnni

}  // namespace edge
