// Rotary and paged attention as plain loops: the twins that the other instruction sets are compared with, and what they fall
// back on for head dims that they do not tile.
#include "attention.h"
#include "tables.h"

namespace edge {

int64_t attend_scratch_floats(int32_t head_dim) { return scratch_floats(head_dim); }

namespace plain {
namespace {

// Norm (where `norm` is not null) and rotation of the channel pair (i, i + D/2) of one head.
struct Pair {
  float first, second;
};
Pair turned(const float *x, int i, int half, const float *norm, float inverse, const float *cosines, const float *sines) {
  float first = x[i], second = x[half + i];
  if (norm) {
    first = first * inverse * norm[i];
    second = second * inverse * norm[half + i];
  }
  return {rotated_first(first, second, cosines[i], sines[i]), rotated_second(first, second, cosines[i], sines[i])};
}

struct BlockResult {
  float maximum, sum;  // maximum NO_MAXIMUM: the row sees nothing of the block, and `outputs` was not written
};

// One row against one block; outputs [D].
BlockResult attend_block(const AttendParams &p, const float *query, int position, int block, float *outputs) {
  const int dim = p.pages.head_dim;
  const Range seen = visible(position, position, p.window, block);
  if (seen.empty()) return {NO_MAXIMUM, 0.0f};
  float scores[BLOCK_TOKENS], lanes[16] = {}, maximum = NO_MAXIMUM;
  for (int j = seen.begin; j < seen.end; ++j) {
    const uint16_t *keys = page_of(p.pages, p.seq, block * BLOCK_PAGES + j / PAGE_TOKENS, 0, p.kv_head);
    float score = 0.0f;
    for (int d = 0; d < dim; ++d) score = fused(query[d], half_to_float(keys[d * PAGE_TOKENS + j % PAGE_TOKENS]), score);
    scores[j] = p.soft_cap > 0.0f ? capped(score, p.soft_cap) : score;
    maximum = larger(maximum, scores[j]);
  }
  for (int d = 0; d < dim; ++d) outputs[d] = 0.0f;
  for (int j = seen.begin; j < seen.end; ++j) {
    const uint16_t *values = page_of(p.pages, p.seq, block * BLOCK_PAGES + j / PAGE_TOKENS, 1, p.kv_head);
    const float weight = exponential(scores[j] - maximum);
    lanes[j % 16] = lanes[j % 16] + weight;
    for (int d = 0; d < dim; ++d) outputs[d] = fused(weight, half_to_float(values[j % PAGE_TOKENS * dim + d]), outputs[d]);
  }
  for (int d = 0; d < dim; ++d) outputs[d] = positive_zero(outputs[d]);
  return {maximum, sum_lanes(lanes)};
}

// Merges blocks in ascending order into a row of outputs.
struct Merger {
  float *row;
  int dim;
  float maximum = NO_MAXIMUM, sum = 0.0f;

  void add(BlockResult block, const float *outputs) {
    if (block.maximum == NO_MAXIMUM) return;
    if (maximum == NO_MAXIMUM) {
      maximum = block.maximum;
      sum = block.sum;
      for (int d = 0; d < dim; ++d) row[d] = outputs[d];
      return;
    }
    const float larger_one = larger(maximum, block.maximum);
    const float old_factor = exponential(maximum - larger_one), block_factor = exponential(block.maximum - larger_one);
    maximum = larger_one;
    sum = merged(sum, old_factor, block.sum, block_factor);
    for (int d = 0; d < dim; ++d) row[d] = merged(row[d], old_factor, outputs[d], block_factor);
  }

  void finish() {
    for (int d = 0; d < dim; ++d) row[d] = maximum == NO_MAXIMUM ? 0.0f : row[d] / sum;
  }
};

}  // namespace

void rotary(const RotaryParams &p) {
  const int dim = p.pages.head_dim, half = dim / 2, heads = p.pages.num_heads, kv_heads = p.pages.num_kv_heads;
  for (int row = p.row_begin; row < p.row_end; ++row) {
    const float *cosines = p.cosines + int64_t(row) * half, *sines = p.sines + int64_t(row) * half;
    const int seq = p.row_seq[row], page = p.row_pos[row] / PAGE_TOKENS, slot = p.row_pos[row] % PAGE_TOKENS;
    float *x = p.qkv + row * p.qkv_stride;
    for (int head = 0; head < heads; ++head, x += dim) {
      const float inverse = p.q_norm ? inverse_rms<float>(x, dim, p.epsilon) : 1.0f;
      for (int i = 0; i < half; ++i) {
        const Pair pair = turned(x, i, half, p.q_norm, inverse, cosines, sines);
        x[i] = pair.first * p.scale;
        x[half + i] = pair.second * p.scale;
      }
    }
    for (int head = 0; head < kv_heads; ++head, x += dim) {
      uint16_t *keys = page_of(p.pages, seq, page, 0, head) + slot;
      const float inverse = p.k_norm ? inverse_rms<float>(x, dim, p.epsilon) : 1.0f;
      for (int i = 0; i < half; ++i) {
        const Pair pair = turned(x, i, half, p.k_norm, inverse, cosines, sines);
        keys[i * PAGE_TOKENS] = float_to_half(half_range(pair.first));
        keys[(half + i) * PAGE_TOKENS] = float_to_half(half_range(pair.second));
      }
    }
    for (int head = 0; head < kv_heads; ++head, x += dim) {
      uint16_t *values = page_of(p.pages, seq, page, 1, head) + slot * dim;
      for (int d = 0; d < dim; ++d) values[d] = float_to_half(half_range(x[d]));
    }
  }
}

void attend(const AttendParams &p) {
  const int dim = p.pages.head_dim, group = p.pages.num_heads / p.pages.num_kv_heads;
  const int rows = (p.token_end - p.token_begin) * group;
  for (int row = 0; row < rows; ++row) {
    const int token = p.token_begin + row / group;
    const float *query = query_of(p, token, row % group);
    Merger merger{p.partials ? nullptr : output_of(p.out, p.out_stride, token, p.kv_head * group, row % group, dim), dim};
    for (int block = p.block_begin; block < p.block_end; ++block) {
      if (p.partials) {
        float *partial = p.partials + (int64_t(block - p.block_begin) * rows + row) * (2 + dim);
        const BlockResult result = attend_block(p, query, p.row_pos[token], block, partial + 2);
        partial[0] = result.maximum;
        partial[1] = result.sum;
      } else {
        merger.add(attend_block(p, query, p.row_pos[token], block, p.scratch), p.scratch);
      }
    }
    if (!p.partials) merger.finish();
  }
}

void merge(const MergeParams &p) {
  const int dim = p.head_dim, group = p.num_heads / p.num_kv_heads, rows = (p.token_end - p.token_begin) * group;
  for (int row = 0; row < rows; ++row) {
    Merger merger{output_of(p.out, p.out_stride, p.token_begin + row / group, p.kv_head * group, row % group, dim), dim};
    for (int block = 0; block < p.blocks; ++block) {
      const float *partial = p.partials + (int64_t(block) * rows + row) * (2 + dim);
      merger.add({partial[0], partial[1]}, partial + 2);
    }
    merger.finish();
  }
}

}  // namespace plain
}  // namespace edge
