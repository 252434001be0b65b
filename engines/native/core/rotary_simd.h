// Rotary for any SIMD instruction set: norms and turns q and k, puts K and V into their pages. Include it behind `Lanes`
// (lanes_*.h). Any even head dim: the last lanes of a half are loaded and stored in part.
#pragma once
#include "attention.h"
#include "rows.h"

namespace edge {
namespace {

// Norm (where `norm` is not null) and rotation of 16 channel pairs (i, i + D/2), or of the `count` < 16 last ones.
struct Pairs {
  Lanes first, second;
};
Pairs turned(const float *x, int half, const float *norm, float inverse, const float *cosines, const float *sines, int count) {
  Lanes first = load_upto<Lanes>(x, count), second = load_upto<Lanes>(x + half, count);
  if (norm) {
    first = first * Lanes(inverse) * load_upto<Lanes>(norm, count);
    second = second * Lanes(inverse) * load_upto<Lanes>(norm + half, count);
  }
  const Lanes cosine = load_upto<Lanes>(cosines, count), sine = load_upto<Lanes>(sines, count);
  return {rotated_first(first, second, cosine, sine), rotated_second(first, second, cosine, sine)};
}

// `stride` 1: a row of V; PAGE_TOKENS: a column of K.
void store_halves(Lanes v, uint16_t *to, int stride, int count) {
  uint16_t halves[16];
  half_range(v).store_half(halves);
  for (int i = 0; i < count && i < 16; ++i) to[i * stride] = halves[i];
}

void rotary_lanes(const RotaryParams &p) {
  const int dim = p.pages.head_dim, half = dim / 2, heads = p.pages.num_heads, kv_heads = p.pages.num_kv_heads;
  const int group = heads / kv_heads;
  for (int row = p.row_begin; row < p.row_end; ++row) {
    const float *cosines = p.cosines + int64_t(row) * half, *sines = p.sines + int64_t(row) * half;
    const int seq = p.row_seq[row], page = p.row_pos[row] / PAGE_TOKENS, slot = p.row_pos[row] % PAGE_TOKENS;
    const float *x = p.qkv + row * p.qkv_stride + p.kv_head_begin * group * dim;
    float *q = p.queries + row * p.queries_stride + p.kv_head_begin * group * dim;
    for (int head = p.kv_head_begin * group; head < p.kv_head_end * group; ++head, x += dim, q += dim) {
      const float inverse = p.q_norm ? inverse_rms<Lanes>(x, dim, p.epsilon) : 1.0f;
      for (int i = 0; i < half; i += 16) {
        const float *norm = p.q_norm ? p.q_norm + i : nullptr;
        const Pairs pairs = turned(x + i, half, norm, inverse, cosines + i, sines + i, half - i);
        store_upto(pairs.first * Lanes(p.scale), q + i, half - i);
        store_upto(pairs.second * Lanes(p.scale), q + half + i, half - i);
      }
    }
    if (!p.append) continue;
    x = p.qkv + row * p.qkv_stride + (heads + p.kv_head_begin) * dim;
    for (int head = p.kv_head_begin; head < p.kv_head_end; ++head, x += dim) {
      uint16_t *keys = page_of(p.pages, seq, page, 0, head) + slot;
      const float inverse = p.k_norm ? inverse_rms<Lanes>(x, dim, p.epsilon) : 1.0f;
      for (int i = 0; i < half; i += 16) {
        const float *norm = p.k_norm ? p.k_norm + i : nullptr;
        const Pairs pairs = turned(x + i, half, norm, inverse, cosines + i, sines + i, half - i);
        store_halves(pairs.first, keys + i * PAGE_TOKENS, PAGE_TOKENS, half - i);
        store_halves(pairs.second, keys + (half + i) * PAGE_TOKENS, PAGE_TOKENS, half - i);
      }
    }
    x = p.qkv + row * p.qkv_stride + (heads + kv_heads + p.kv_head_begin) * dim;
    for (int head = p.kv_head_begin; head < p.kv_head_end; ++head, x += dim) {
      uint16_t *values = page_of(p.pages, seq, page, 1, head) + slot * dim;
      for (int d = 0; d < dim; d += 16) store_halves(load_upto<Lanes>(x + d, dim - d), values + d, 1, dim - d);
    }
  }
}

}  // namespace
}  // namespace edge
