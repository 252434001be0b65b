// Rotary and paged attention on AVX2.
#include "lanes_avx2.h"
#include "tables.h"

namespace edge {
namespace {

struct Register {
  using V = __m256;
  static constexpr int FLOATS = 8, ROWS = 6;
  static V zero() { return _mm256_setzero_ps(); }
  static V broadcast(const float *x) { return _mm256_set1_ps(*x); }
  static V load(const float *x) { return _mm256_loadu_ps(x); }
  static V load(const uint16_t *x) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(x))); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static void store(float *x, V v) { _mm256_storeu_ps(x, v); }
};

}  // namespace
}  // namespace edge

#include "attention_simd.h"
#include "rotary_simd.h"

namespace edge::avx2 {

void rotary(const RotaryParams &p) { rotary_lanes(p); }
void attend(const AttendParams &p) {
  is_tiled(p.pages.head_dim, p.pages.num_heads, p.pages.num_kv_heads) ? attend_tiled(p) : plain::attend(p);
}
void merge(const MergeParams &p) { is_tiled(p.head_dim, p.num_heads, p.num_kv_heads) ? merge_tiled(p) : plain::merge(p); }

}  // namespace edge::avx2
