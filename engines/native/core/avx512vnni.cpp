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

// sums + the dots of 16 outputs by 4 inputs with 4 activations.
inline __m512i add_dots(__m512i sums, __m512i quants, const int8_t *four) {
  using Four [[gnu::may_alias]] = int32_t;
  const Four *x = reinterpret_cast<const Four *>(four);
#if defined(__clang__)
  return _mm512_dpbusd_epi32(sums, quants, _mm512_set1_epi32(*x));
#else  // GCC 12 loads into a register first, and 4 % fewer products come out
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(quants), "m"(*x));
  return sums;
#endif
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

// Where sums start: at the zero point times the sum of the activations.
template <int KIND, int GROUP>
inline __m512i zero_point(const RowStep &x, int group) {
  const __m512i zero = _mm512_set1_epi32(GROUP == 16 ? x.zeros[group] : x.zero);
  return KIND == WeightKind::int4 ? zero : _mm512_slli_epi32(zero, 4);
}

template <int KIND, int GROUP, bool MINIMA, int ROWS>
void quantised_tile(const Weight &w, const uint8_t *strip, int64_t ahead, const Rows &x, int64_t row, float *out) {
  constexpr int QUANT_BYTES = KIND == WeightKind::int4 ? 256 : 512, GROUPS = STEP / GROUP;  // a step
  constexpr int STEP_BYTES = QUANT_BYTES + GROUPS * 32 * (MINIMA ? 2 : 1);
  const int64_t steps = w.inputs / STEP;
  const uint16_t *weight_scales = reinterpret_cast<const uint16_t *>(strip + w.scales_offset);
  const uint16_t *weight_minima = reinterpret_cast<const uint16_t *>(strip + w.minima_offset);

  const RowStep *rows[ROWS];
  Lanes totals[ROWS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
    rows[r] = x.steps + (row + r) * steps;
    totals[r] = Lanes(0.0f);
  }
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
        const RowStep &inputs = rows[r][step];
        __m512i dots = MINIMA ? _mm512_setzero_si512() : zero_point<KIND, GROUP>(inputs, group);
#pragma GCC unroll 8
        for (int j = 0; j < GROUP / 4; ++j) dots = add_dots(dots, weights[group * 4 + j], inputs.quants + group * 16 + j * 4);
        totals[r] = fused(Lanes(_mm512_cvtepi32_ps(dots)), scale * Lanes(inputs.scale), totals[r]);
        if (MINIMA) totals[r] = fused(minimum, Lanes(GROUP == 16 ? inputs.sums[group] : inputs.sum), totals[r]);
      }
    }
  }
#pragma GCC unroll 8  // else the totals live on the stack
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
