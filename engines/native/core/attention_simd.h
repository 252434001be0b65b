// Paged attention for any SIMD instruction set: tasks cut into tiles, block by block. Include it in one file a set, behind
// `Lanes` (lanes_*.h) and the `Register` that attention_product.h describes.
//
// Tasks of more than one tile turn a block's K and V to fp32 panels once; a single tile (decode) reads the fp16 pages itself
// and prefetches one block ahead.
#pragma once
#include "attention_tile.h"

namespace edge {
namespace {

// K and V of the block's pages around `span` as fp32 panels: K [128 / PANEL][D][PANEL], V [D / PANEL][128][PANEL].
void widen_block(const AttendParams &p, int block, Range span, const Scratch &scratch) {
  const int dim = p.pages.head_dim;
  for (int page = span.begin / PAGE_TOKENS; page * PAGE_TOKENS < span.end; ++page) {
    const int at = page * PAGE_TOKENS;
    const uint16_t *keys = page_of(p.pages, p.seq, block * BLOCK_PAGES + page, 0, p.kv_head);
    const uint16_t *values = page_of(p.pages, p.seq, block * BLOCK_PAGES + page, 1, p.kv_head);
    for (int column = 0; column < PAGE_TOKENS; column += PANEL) {
      widen(dim, PANEL, keys + column, PAGE_TOKENS, scratch.keys + int64_t(at + column) * dim);
    }
    for (int d = 0; d < dim; d += PANEL) {
      widen(PAGE_TOKENS, dim - d < PANEL ? dim - d : PANEL, values + d, dim, scratch.values + d * BLOCK_TOKENS + at * PANEL);
    }
  }
}

// Prefetches K and V of the pages around `span`, part `part` of `parts`. A page of either is D lines of 64 bytes.
void prefetch_block(const AttendParams &p, int block, Range span, int part, int parts) {
  const int dim = p.pages.head_dim, begin = dim * part / parts, end = dim * (part + 1) / parts;
  for (int page = span.begin / PAGE_TOKENS; page * PAGE_TOKENS < span.end; ++page) {
    for (int side = 0; side < 2; ++side) {
      const uint16_t *from = page_of(p.pages, p.seq, block * BLOCK_PAGES + page, side, p.kv_head);
      for (int line = begin; line < end; ++line) prefetch(from + line * PAGE_TOKENS);
    }
  }
}

// Tokens [token_begin, token_end) of p, at most PASS_ROWS rows.
void attend_pass(const AttendParams &p, const Scratch &scratch, int token_begin, int token_end) {
  const int dim = p.pages.head_dim, group = p.pages.num_heads / p.pages.num_kv_heads;
  const int first_row = (token_begin - p.token_begin) * group, rows = (token_end - token_begin) * group;
  const int all_rows = (p.token_end - p.token_begin) * group;
  const int tiles = (rows + Register::ROWS - 1) / Register::ROWS;
  const int first_position = p.row_pos[token_begin], last_position = p.row_pos[token_end - 1];
  for (int r = 0; r < rows; ++r) scratch.maxima[r] = NO_MAXIMUM;
  const auto span_of = [&](int block) {
    return block < p.block_end ? visible(first_position, last_position, p.window, block) : Range{0, 0};
  };
  prefetch_block(p, p.block_begin, span_of(p.block_begin), 0, 1);
  for (int block = p.block_begin; block < p.block_end; ++block) {
    const Range span = span_of(block), next = span_of(block + 1);
    if (tiles > 1) widen_block(p, block, span, scratch);
    for (int t = 0, r = 0; t < tiles; ++t, r += Register::ROWS) {
      if (tiles > 1) prefetch_block(p, block + 1, next, t, tiles);
      Tile tile(p, scratch, first_row + r, rows - r < Register::ROWS ? rows - r : Register::ROWS);
      tile.run(block, tiles > 1);
      if (p.partials) {
        tile.write_partials(p.partials + (int64_t(block - p.block_begin) * all_rows + first_row + r) * (2 + dim));
      } else {
        tile.merge(scratch.maxima + r, scratch.sums + r);
      }
    }
  }
  if (p.partials) return;
  for (int r = 0; r < rows; ++r) {
    finish_row(output_of(p.out, p.out_stride, token_begin + r / group, p.kv_head * group, r % group, dim), scratch.maxima[r],
               scratch.sums[r], dim);
  }
}

bool is_tiled(int head_dim, int heads, int kv_heads) {
  return head_dim % 16 == 0 && head_dim <= MAX_HEAD_DIM && heads / kv_heads <= PASS_ROWS;
}

void attend_tiled(const AttendParams &p) {
  const Scratch scratch = lay_out(p.scratch, p.pages.head_dim);
  const int group = p.pages.num_heads / p.pages.num_kv_heads, pass = PASS_ROWS / group;
  for (int begin = p.token_begin; begin < p.token_end; begin += pass) {
    attend_pass(p, scratch, begin, begin + pass < p.token_end ? begin + pass : p.token_end);
  }
}

void merge_tiled(const MergeParams &p) {
  const int dim = p.head_dim, group = p.num_heads / p.num_kv_heads, rows = (p.token_end - p.token_begin) * group;
  for (int r = 0; r < rows; ++r) {
    float *row = output_of(p.out, p.out_stride, p.token_begin + r / group, p.kv_head * group, r % group, dim);
    float maximum = NO_MAXIMUM, sum = 0.0f;
    for (int block = 0; block < p.blocks; ++block) {
      const float *partial = p.partials + (int64_t(block) * rows + r) * (2 + dim);
      if (partial[0] == NO_MAXIMUM) continue;
      if (maximum == NO_MAXIMUM) {
        maximum = partial[0];
        sum = partial[1];
        copy_row(partial + 2, row, dim);
        continue;
      }
      const float both = larger(maximum, partial[0]);
      const float old_factor = exponential(maximum - both), block_factor = exponential(partial[0] - both);
      maximum = both;
      sum = merged(sum, old_factor, partial[1], block_factor);
      merge_row(row, old_factor, partial + 2, block_factor, dim);
    }
    finish_row(row, maximum, sum, dim);
  }
}

}  // namespace
}  // namespace edge
