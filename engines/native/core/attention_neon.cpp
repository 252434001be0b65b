// Rotary and paged attention on NEON.
#include "lanes_neon.h"
#include "tables.h"

namespace edge {
namespace {

struct Register {
  struct V {
    float32x4_t low, high;
  };
  static constexpr int FLOATS = 8, ROWS = 6;
  static V zero() { return broadcast(0.0f); }
  static V broadcast(const float *x) { return broadcast(*x); }
  static V load(const float *x) { return {vld1q_f32(x), vld1q_f32(x + 4)}; }
  static V load(const uint16_t *x) {
    const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(x));
    return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
  }
  static V fma(V a, V b, V c) { return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)}; }
  static void store(float *x, V v) {
    vst1q_f32(x, v.low);
    vst1q_f32(x + 4, v.high);
  }

 private:
  static V broadcast(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
};

}  // namespace
}  // namespace edge

#include "attention_simd.h"
#include "rotary_simd.h"

namespace edge::neon {

void rotary(const RotaryParams &p) { rotary_lanes(p); }
void attend(const AttendParams &p) {
  is_tiled(p.pages.head_dim, p.pages.num_heads, p.pages.num_kv_heads) ? attend_tiled(p) : plain::attend(p);
}
void merge(const MergeParams &p) { is_tiled(p.head_dim, p.num_heads, p.num_kv_heads) ? merge_tiled(p) : plain::merge(p); }

}  // namespace edge::neon
