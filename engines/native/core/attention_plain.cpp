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

int16_t to_int(float x, float factor) { return int16_t(bits_of(in_steps(x, factor))); }

// The pages of a block as integers, rows of D channels: of fp16 pages steps, of sealed ones what they keep.
struct Block {
  int16_t *keys, *values, *folded;
  float *key_scales, *value_scales;  // of fp16 pages
  Part key_parts[BLOCK_PAGES], value_parts[BLOCK_PAGES];

  Block(const Scratch &scratch)
      : keys(reinterpret_cast<int16_t *>(scratch.keys)),
        values(reinterpret_cast<int16_t *>(scratch.values)),
        folded(reinterpret_cast<int16_t *>(scratch.folded)),
        key_scales(scratch.key_scales),
        value_scales(scratch.value_scales) {}

  // `count` halves, `stride` apart; returns their scale.
  static float fill(const uint16_t *from, int stride, int count, float steps, int16_t *to) {
    uint16_t most = 0;
    for (int i = 0; i < count; ++i) {
      const uint16_t magnitude = from[i * stride] & 0x7fffu;
      most = magnitude > most ? magnitude : most;
    }
    const float largest = half_magnitude(most), factor = steps_of(largest, steps, SMALLEST_HALF);
    for (int i = 0; i < count; ++i) to[i] = to_int(half_to_float(from[i * stride]), factor);
    return largest * (1.0f / steps);
  }

  // One token of a sealed page.
  static void unpack(Part part, int side, int dim, int token, int16_t *to) {
    const SealedPart layout(side, part.format, dim);
    const uint32_t *words = reinterpret_cast<const uint32_t *>(part.bytes);
    for (int d = 0; d < dim; ++d) {
      to[d] = int16_t(words[layout.word_of(token, d)] >> layout.shift_of(token, d) & ((1u << layout.bits) - 1));
    }
  }

  void read(const AttendParams &p, int block, Range span) {
    const int dim = p.pages.head_dim;
    for (int j = span.begin; j < span.end; ++j) {
      const int page = j / PAGE_TOKENS, slot = j % PAGE_TOKENS;
      const Part k = key_parts[page] = part_of(p.pages, p.seq, block * BLOCK_PAGES + page, 0, p.kv_head);
      const Part v = value_parts[page] = part_of(p.pages, p.seq, block * BLOCK_PAGES + page, 1, p.kv_head);
      if (k.format == PageFormat::fp16) {
        key_scales[j] = fill(k.halves() + slot, PAGE_TOKENS, dim, KEY_STEPS, keys + j * dim);
      } else {
        unpack(k, 0, dim, slot, keys + j * dim);
      }
      if (v.format == PageFormat::fp16) {
        value_scales[j] = fill(v.halves() + slot * dim, 1, dim, VALUE_STEPS, values + j * dim);
      } else {
        unpack(v, 1, dim, slot, values + j * dim);
      }
    }
  }
};

// The integers of a row of numbers; returns their scale.
float fill_row(const float *x, int dim, float steps, int16_t *to) {
  uint32_t bits = 0;
  for (int d = 0; d < dim; ++d) {
    const uint32_t magnitude = bits_of(absolute(x[d]));
    bits = magnitude > bits ? magnitude : bits;
  }
  const float largest = query_magnitude(bits), factor = steps_of(largest, steps, SMALLEST);
  for (int d = 0; d < dim; ++d) to[d] = to_int(x[d], factor);
  return largest * (1.0f / steps);
}

// 32 bits hold the sum of MAX_HEAD_DIM channels. Steps of what is no number are any 16 bits: their sums wrap, as in registers.
float dot(const int16_t *a, const int16_t *b, int dim) {
  int64_t sum = 0;
  for (int d = 0; d < dim; d += MAX_HEAD_DIM) {
    uint32_t part = 0;
    for (int i = d; i < d + MAX_HEAD_DIM && i < dim; ++i) part += uint32_t(a[i] * b[i]);
    sum += int32_t(part);
  }
  return float(sum);
}

// A row of q, and as integers for fp16 pages.
struct Query {
  const float *x;
  const int16_t *steps;
  float factor;  // score_factor
};

// A query folded with the scales of one sealed page of K.
struct Folded {
  float factor, base;

  Folded(const Query &query, Part keys, int dim, float soft_cap, float *products, int16_t *steps) {
    const SealedPart layout(0, keys.format, dim);
    const uint16_t *scales = reinterpret_cast<const uint16_t *>(keys.bytes + layout.scales_offset());
    const uint16_t *minima = reinterpret_cast<const uint16_t *>(keys.bytes + layout.minima_offset());
    float lanes[16] = {}, integers = 0.0f;
    for (int d = 0; d < dim; ++d) {
      const float scale = half_to_float(scales[d]);
      products[d] = query.x[d] * scale;
      lanes[d % 16] = fused(query.x[d], middle_of(half_to_float(minima[d]), scale, keys.format), lanes[d % 16]);
    }
    const float step = fill_row(products, dim, query_steps(keys.format), steps);
    for (int d = 0; d < dim; ++d) integers += float(steps[d]);
    factor = score_factor(step, soft_cap);
    base = score_factor(base_of(sum_lanes(lanes), step, integers, keys.format), soft_cap);
  }
};

struct BlockResult {
  float maximum, total;  // maximum NO_MAXIMUM: the row sees nothing of the block, and `outputs` was not written
};

// Scores of the tokens that a row sees; `products`: room for D floats.
void score_block(const Block &block, const Query &query, float soft_cap, int dim, Range seen, float *products, float *scores) {
  for (int first = seen.begin, end; first < seen.end; first = end) {
    const Part keys = block.key_parts[first / PAGE_TOKENS];
    end = (first / PAGE_TOKENS + 1) * PAGE_TOKENS;
    end = end < seen.end ? end : seen.end;
    if (keys.format == PageFormat::fp16) {
      for (int j = first; j < end; ++j) {
        scores[j] = score_of(dot(query.steps, block.keys + j * dim, dim), block.key_scales[j], query.factor, soft_cap);
      }
      continue;
    }
    const Folded folded(query, keys, dim, soft_cap, products, block.folded);
    for (int j = first; j < end; ++j) {
      scores[j] = sealed_score_of(dot(block.folded, block.keys + j * dim, dim), folded.factor, folded.base, soft_cap);
    }
  }
}

// Channels [first, end) of the tokens `seen` of one segment, which share a scale where they are sealed: weights [128] to
// outputs, those of the segments before it added.
void sum_channels(const Block &block, const Segment &segment, const float *weights, int dim, Range seen, int first, int end,
                  bool is_first, float *outputs) {
  const bool sealed = segment.format != PageFormat::fp16;
  float scaled[BLOCK_TOKENS], lanes[16] = {}, largest = 0.0f;
  for (int j = seen.begin; j < seen.end; ++j) {
    if (sealed) {
      const SealedPart layout(1, segment.format, dim);
      const uint8_t *bytes = block.value_parts[j / PAGE_TOKENS].bytes;
      const int at = layout.scale_of(j % PAGE_TOKENS, first);
      const float scale = half_to_float(reinterpret_cast<const uint16_t *>(bytes + layout.scales_offset())[at]);
      const float minimum = half_to_float(reinterpret_cast<const uint16_t *>(bytes + layout.minima_offset())[at]);
      scaled[j] = weights[j] * scale;
      lanes[j % 16] = fused(weights[j], middle_of(minimum, scale, segment.format), lanes[j % 16]);
    } else {
      scaled[j] = weights[j] * block.value_scales[j];
    }
    largest = larger(largest, scaled[j]);
  }
  const float most = weight_steps(segment.format), steps = steps_of(largest, most, SMALLEST), step = largest * (1.0f / most);
  int32_t integers[BLOCK_TOKENS], total = 0;
  for (int j = seen.begin; j < seen.end; ++j) total += integers[j] = to_int(scaled[j], steps);
  const float base = base_of(sum_lanes(lanes), step, float(total), segment.format);
  for (int d = first; d < end; ++d) {
    uint32_t sum = 0;
    for (int j = seen.begin; j < seen.end; ++j) sum += uint32_t(integers[j] * block.values[j * dim + d]);
    const float found = float(int32_t(sum));
    const float output = sealed ? output_of_sealed(found, step, base) : output_of_block(found, largest);
    outputs[d] = is_first ? output : outputs[d] + output;
  }
}

// One row against one block; outputs [D].
BlockResult attend_block(const Block &block, const Query &query, float soft_cap, int dim, Range seen, float *outputs) {
  if (seen.empty()) return {NO_MAXIMUM, 0.0f};
  float weights[BLOCK_TOKENS], maximum = NO_MAXIMUM, total = 0.0f;
  score_block(block, query, soft_cap, dim, seen, outputs, weights);
  for (int j = seen.begin; j < seen.end; ++j) maximum = larger(maximum, weights[j]);
  for (int j = seen.begin; j < seen.end; ++j) {
    weights[j] = power_of<WEIGHT_POWER>(weights[j] - maximum);
    total += rounded(weights[j]);
  }
  Segment segments[BLOCK_PAGES];
  const int count = cut_segments(
      seen.begin / PAGE_TOKENS, (seen.end - 1) / PAGE_TOKENS + 1, [&](int page) { return block.value_parts[page].format; },
      segments);
  for (int i = 0; i < count; ++i) {
    const int begin = segments[i].begin * PAGE_TOKENS, end = segments[i].end * PAGE_TOKENS;
    const Range tokens{begin > seen.begin ? begin : seen.begin, end < seen.end ? end : seen.end};
    const int group = segments[i].format == PageFormat::fp16 ? dim : VALUE_GROUPS[segments[i].format];
    for (int d = 0; d < dim; d += group) {
      sum_channels(block, segments[i], weights, dim, tokens, d, d + group < dim ? d + group : dim, i == 0, outputs);
    }
  }
  return {maximum, total};
}

// Merges blocks in ascending order into a row of outputs.
struct Merger {
  float maximum = NO_MAXIMUM, total = 0.0f;

  void add(BlockResult block, const float *outputs, int dim, float *row) {
    if (block.maximum == NO_MAXIMUM) return;
    const float both = larger(maximum, block.maximum);
    const float old_factor = power_of<0>(maximum - both), block_factor = power_of<0>(block.maximum - both);
    maximum = both;
    total = merged(total, old_factor, block.total, block_factor);
    for (int d = 0; d < dim; ++d) row[d] = merged(row[d], old_factor, outputs[d], block_factor);
  }
};

// Rows [row_begin, row_end) of a task, at most PASS_ROWS.
void attend_pass(const AttendParams &p, const Scratch &scratch, int row_begin, int row_end) {
  const int dim = p.pages.head_dim, rows = (p.token_end - p.token_begin) * heads_a_token(p);
  const int first = position_of_row(p, row_begin), last = position_of_row(p, row_end - 1);
  int16_t *queries = reinterpret_cast<int16_t *>(scratch.queries);
  Merger mergers[PASS_ROWS];
  for (int row = row_begin; row < row_end; ++row) {
    const int at = row - row_begin;
    scratch.factors[at] =
        score_factor(fill_row(query_of_row(p, row), dim, QUERY_STEPS, queries + int64_t(at) * dim), p.soft_cap);
    for (int d = 0; d < dim; ++d) scratch.outputs[int64_t(at) * dim + d] = 0.0f;
  }
  Block integers(scratch);
  for (int block = p.block_begin; block < p.block_end; ++block) {
    integers.read(p, block, visible(first, last, p.window, block));
    for (int row = row_begin; row < row_end; ++row) {
      const int at = row - row_begin, position = position_of_row(p, row);
      float *partial = p.partials ? p.partials + (int64_t(block - p.block_begin) * rows + row) * (2 + dim) : scratch.scores;
      const Query query{query_of_row(p, row), queries + int64_t(at) * dim, scratch.factors[at]};
      const BlockResult result =
          attend_block(integers, query, p.soft_cap, dim, visible(position, position, p.window, block), partial + 2);
      if (p.partials) {
        partial[0] = result.maximum;
        partial[1] = result.total;
      } else {
        mergers[at].add(result, partial + 2, dim, scratch.outputs + int64_t(at) * dim);
      }
    }
  }
  if (p.partials) return;
  for (int row = row_begin; row < row_end; ++row) {
    const float *outputs = scratch.outputs + int64_t(row - row_begin) * dim;
    for (int d = 0; d < dim; ++d) output_of_row(p, row)[d] = final_output(outputs[d], mergers[row - row_begin].total);
  }
}

}  // namespace

void rotary(const RotaryParams &p) {
  const int dim = p.pages.head_dim, half = dim / 2, heads = p.pages.num_heads, kv_heads = p.pages.num_kv_heads;
  const int group = heads / kv_heads;
  for (int row = p.row_begin; row < p.row_end; ++row) {
    const float *cosines = p.cosines + int64_t(row) * half, *sines = p.sines + int64_t(row) * half;
    const int seq = p.row_seq[row], page = p.row_pos[row] / PAGE_TOKENS, slot = p.row_pos[row] % PAGE_TOKENS;
    const float *x = p.qkv + row * p.qkv_stride + p.kv_head_begin * group * dim;
    float *q = p.queries + row * p.queries_stride + p.kv_head_begin * group * dim;
    for (int head = p.kv_head_begin * group; head < p.kv_head_end * group; ++head, x += dim, q += dim) {
      const float inverse = p.q_norm ? inverse_rms<float>(x, dim, p.epsilon) : 1.0f;
      for (int i = 0; i < half; ++i) {
        const Pair pair = turned(x, i, half, p.q_norm, inverse, cosines, sines);
        q[i] = pair.first * p.scale;
        q[half + i] = pair.second * p.scale;
      }
    }
    if (!p.append) continue;
    x = p.qkv + row * p.qkv_stride + (heads + p.kv_head_begin) * dim;
    for (int head = p.kv_head_begin; head < p.kv_head_end; ++head, x += dim) {
      uint16_t *keys = page_of(p.pages, seq, page, 0, head) + slot;
      const float inverse = p.k_norm ? inverse_rms<float>(x, dim, p.epsilon) : 1.0f;
      for (int i = 0; i < half; ++i) {
        const Pair pair = turned(x, i, half, p.k_norm, inverse, cosines, sines);
        keys[i * PAGE_TOKENS] = float_to_half(half_range(pair.first));
        keys[(half + i) * PAGE_TOKENS] = float_to_half(half_range(pair.second));
      }
    }
    x = p.qkv + row * p.qkv_stride + (heads + kv_heads + p.kv_head_begin) * dim;
    for (int head = p.kv_head_begin; head < p.kv_head_end; ++head, x += dim) {
      uint16_t *values = page_of(p.pages, seq, page, 1, head) + slot * dim;
      for (int d = 0; d < dim; ++d) values[d] = float_to_half(half_range(x[d]));
    }
  }
}

void attend(const AttendParams &p) {
  const Scratch scratch = lay_out(p.scratch, p.pages.head_dim);
  const int rows = (p.token_end - p.token_begin) * heads_a_token(p), most = pass_rows(p.pages.head_dim);
  for (int row = 0; row < rows; row += most) attend_pass(p, scratch, row, rows - row < most ? rows : row + most);
}

void merge(const MergeParams &p) {
  const int dim = p.head_dim, rows = (p.token_end - p.token_begin) * (p.num_heads / p.num_kv_heads);
  for (int row = 0; row < rows; ++row) {
    Merger merger;
    float *outputs = output_of_row(p, row);
    for (int d = 0; d < dim; ++d) outputs[d] = 0.0f;
    for (int block = 0; block < p.blocks; ++block) {
      const float *partial = p.partials + (int64_t(block) * rows + row) * (2 + dim);
      merger.add({partial[0], partial[1]}, partial + 2, dim, outputs);
    }
    for (int d = 0; d < dim; ++d) outputs[d] = final_output(outputs[d], merger.total);
  }
}

}  // namespace plain
}  // namespace edge
