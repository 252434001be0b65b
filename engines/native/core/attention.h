// What every attention kernel shares: which positions a row sees, where a page lies, the layout of a task's scratch memory,
// and the few formulas whose order of rounding the twins must agree on. Anonymous for the reason given in math.h.
#pragma once
#include "kernels.h"
#include "math.h"

namespace edge {
namespace {

constexpr int BLOCK_PAGES = BLOCK_TOKENS / PAGE_TOKENS;
constexpr float NO_MAXIMUM = -__builtin_inff();  // of a row that sees nothing

struct Range {
  int begin, end;
  bool empty() const { return begin >= end; }
};

// Positions of `block`, counted from its start, that rows at positions first..last see, any of them; {0, 0} for none.
inline Range visible(int first, int last, int window, int block) {
  const int start = block * BLOCK_TOKENS, oldest = window && first >= window ? first - window + 1 : 0;
  const int begin = oldest > start ? oldest - start : 0,
            end = last + 1 - start < BLOCK_TOKENS ? last + 1 - start : BLOCK_TOKENS;
  return begin < end ? Range{begin, end} : Range{0, 0};
}

// The K (side 0: [D][32 tokens]) or V (side 1: [32 tokens][D]) of one kv head in the page of position page * PAGE_TOKENS.
inline uint16_t *page_of(const LayerPages &pages, int seq, int page, int side, int kv_head) {
  const int64_t head = int64_t(pages.head_dim) * PAGE_TOKENS;
  const int32_t word = pages.page_table[(int64_t(seq) * pages.max_pages + page) * 2 + side];
  uint16_t *extent = reinterpret_cast<uint16_t *>(pages.pool + int64_t(word & OFFSET_MASK) * OFFSET_UNIT);
  return extent + (int64_t(pages.group_layer) * pages.num_kv_heads + kv_head) * head;
}

// Where row (token, head of the group) of a kv head starts in the packed queries, and in `out`.
inline const float *query_of(const AttendParams &p, int token, int head) {
  const int group = p.pages.num_heads / p.pages.num_kv_heads;
  return p.qkv + token * p.qkv_stride + (int64_t(p.kv_head) * group + head) * p.pages.head_dim;
}
inline float *output_of(float *out, int64_t stride, int token, int first_head, int head, int head_dim) {
  return out + token * stride + (int64_t(first_head) + head) * head_dim;
}

// Scratch of `attend`, in floats, of the widest instruction set. K and V of a block as fp32; a tile of queries, of scores and
// of outputs; maximum and sum of every row of a pass.
constexpr int MAX_HEAD_DIM = 256;               // of the fast kernels; wider heads take the plain loops
constexpr int TILE_STRIDE = MAX_HEAD_DIM + 16;  // floats; 17 cache lines, so that the rows of a tile fall into different sets
constexpr int TILE_ROWS = 16;                   // room in a tile
constexpr int PASS_ROWS = 2048;                 // rows between whose tiles the fp32 copy of a block is shared

struct Scratch {
  float *keys, *values, *queries, *scores, *outputs, *maxima, *sums;
};

inline int64_t padded_dim(int head_dim) { return (head_dim + 31) / 32 * 32; }
inline int64_t scratch_floats(int head_dim) {
  return 2 * BLOCK_TOKENS * padded_dim(head_dim) + 3 * TILE_ROWS * TILE_STRIDE + 2 * (PASS_ROWS + TILE_ROWS);
}
inline Scratch lay_out(float *scratch, int head_dim) {
  Scratch s;
  s.keys = scratch;
  s.values = s.keys + BLOCK_TOKENS * padded_dim(head_dim);
  s.queries = s.values + BLOCK_TOKENS * padded_dim(head_dim);
  s.scores = s.queries + TILE_ROWS * TILE_STRIDE;
  s.outputs = s.scores + TILE_ROWS * TILE_STRIDE;
  s.maxima = s.outputs + TILE_ROWS * TILE_STRIDE;
  s.sums = s.maxima + PASS_ROWS + TILE_ROWS;
  return s;
}

// --- formulas; V as in math.h ---------------------------------------------------------------------------------------

template <class V>
inline V capped(V score, V cap) {
  return cap * hyperbolic_tangent(score / cap);
}

// Half-rotation: channels i and i + D/2 turn together.
template <class V>
inline V rotated_first(V first, V second, V cosine, V sine) {
  return fused(first, cosine, V(0.0f) - second * sine);
}
template <class V>
inline V rotated_second(V first, V second, V cosine, V sine) {
  return fused(second, cosine, first * sine);
}

// Saturates before the conversion to fp16: an infinity in V would reach rows that do not see it, as 0 * infinity. A NaN stays.
template <class V>
inline V half_range(V x) {
  return smaller(V(65504.0f), larger(V(-65504.0f), x));
}

// Tiles run over zero weights of positions that only their other rows see, which changes no sum but one that has underflowed
// to -0. Adding +0 makes that +0 in either case.
template <class V>
inline V positive_zero(V x) {
  return x + V(0.0f);
}

template <class V>
inline V merged(V old, V old_factor, V block, V block_factor) {
  return fused(old, old_factor, block * block_factor);
}

}  // namespace
}  // namespace edge
