// Paged attention for any SIMD instruction set: passes of rows, block by block. Include it in one file a set, behind what
// attention_panels.h asks for. Few rows (decode) take attention_narrow.h, many attention_wide.h: the same integers, formulas
// and merge, hence the same bits.
#pragma once
#include "attention_narrow_mixed.h"
#include "attention_wide_mixed.h"

namespace edge {
namespace {

// Rows [row_begin, row_begin + rows) of a task.
struct Pass {
  int row_begin, rows;
};

// What any row of a pass sees of a block of the task.
Range span_of(const AttendParams &p, Pass pass, int block) {
  if (block >= p.block_end) return {0, 0};
  const int first = position_of_row(p, pass.row_begin), last = position_of_row(p, pass.row_begin + pass.rows - 1);
  return visible(first, last, p.window, block);
}

float *partials_of(const AttendParams &p, int block, int row) {
  if (!p.partials) return nullptr;
  const int rows = (p.token_end - p.token_begin) * heads_a_token(p);
  return p.partials + (int64_t(block - p.block_begin) * rows + row) * (2 + p.pages.head_dim);
}

void attend_narrow(const AttendParams &p, const Scratch &scratch, Pass pass) {
  MixedNarrow rows(p, scratch, pass.row_begin, pass.rows);
  for (int block = p.block_begin; block < p.block_end; ++block) {
    rows.run(block, span_of(p, pass, block), span_of(p, pass, block + 1), partials_of(p, block, pass.row_begin));
  }
  if (!p.partials) rows.finish();
}

// Whether a task meets a sealed page of K.
bool has_sealed_keys(const AttendParams &p) {
  const int last = p.row_pos[p.token_end - 1] / PAGE_TOKENS, end = p.block_end * BLOCK_PAGES;
  for (int page = p.block_begin * BLOCK_PAGES; page <= last && page < end; ++page) {
    const int32_t word = p.pages.page_table[(int64_t(p.seq) * p.pages.max_pages + page) * 2];
    if (word != EMPTY && format_of(word) != PageFormat::fp16) return true;
  }
  return false;
}

void attend_wide(const AttendParams &p, const Scratch &scratch, Pass pass) {
  const bool sealed = has_sealed_keys(p);
  const int dim = p.pages.head_dim, groups = (pass.rows + WIDE_ROWS - 1) / WIDE_ROWS;
  const auto group_at = [&](int group) {
    const int first = group * WIDE_ROWS, left = pass.rows - first;
    return MixedWide(p, scratch, first, pass.row_begin + first, left < WIDE_ROWS ? left : WIDE_ROWS);
  };
  prefetch_block(p, p.block_begin, span_of(p, pass, p.block_begin), 0, 1);
  for (int group = 0; group < groups; ++group) {
    group_at(group).begin();
    if (sealed) group_at(group).begin_sealed();
  }
  for (int block = p.block_begin; block < p.block_end; ++block) {
    const Range span = span_of(p, pass, block), next = span_of(p, pass, block + 1);
    for (int page = span.begin / PAGE_TOKENS; page * PAGE_TOKENS < span.end; ++page) {
      const int at = page * PAGE_TOKENS;
      const Part keys = part_of(p, block, page, 0), values = part_of(p, block, page, 1);
      int32_t *pairs = scratch.values + at / 2 * dim;
      keys.format == PageFormat::fp16 ? fill_keys(keys.halves(), dim, scratch.keys + at, scratch.key_scales + at)
                                      : unpack_keys(keys, dim, scratch.keys + at);
      values.format == PageFormat::fp16 ? fill_values(values.halves(), dim, pairs, scratch.value_scales + at)
                                        : unpack_values(values, dim, pairs);
    }
    for (int group = 0; group < groups; ++group) {
      prefetch_block(p, block + 1, next, group, groups);
      group_at(group).run(block, partials_of(p, block, pass.row_begin + group * WIDE_ROWS));
    }
  }
  for (int group = 0; !p.partials && group < groups; ++group) group_at(group).finish();
}

bool is_tiled(int head_dim) { return head_dim % 16 == 0 && head_dim <= MAX_HEAD_DIM; }

void attend_tiled(const AttendParams &p) {
  const Scratch scratch = lay_out(p.scratch, p.pages.head_dim);
  const int rows = (p.token_end - p.token_begin) * heads_a_token(p), most = pass_rows(p.pages.head_dim);
  for (int row = 0; row < rows; row += most) {
    const Pass pass{row, rows - row < most ? rows - row : most};
    pass.rows <= NARROW_ROWS ? attend_narrow(p, scratch, pass) : attend_wide(p, scratch, pass);
  }
}

void merge_tiled(const MergeParams &p) {
  const int dim = p.head_dim, rows = (p.token_end - p.token_begin) * (p.num_heads / p.num_kv_heads);
  for (int r = 0; r < rows; ++r) {
    float *row = output_of_row(p, r), maximum = NO_MAXIMUM, total = 0.0f;
    for (int d = 0; d < dim; d += 16) Lanes(0.0f).store(row + d);
    for (int block = 0; block < p.blocks; ++block) {
      const float *partial = p.partials + (int64_t(block) * rows + r) * (2 + dim);
      if (partial[0] == NO_MAXIMUM) continue;
      const float both = larger(maximum, partial[0]);
      const float old_factor = power_of<0>(maximum - both), block_factor = power_of<0>(partial[0] - both);
      maximum = both;
      total = merged(total, old_factor, partial[1], block_factor);
      for (int d = 0; d < dim; d += 16) {
        merged(Lanes::load(row + d), Lanes(old_factor), Lanes::load(partial + 2 + d), Lanes(block_factor)).store(row + d);
      }
    }
    for (int d = 0; d < dim; d += 16) final_output(Lanes::load(row + d), Lanes(total)).store(row + d);
  }
}

}  // namespace
}  // namespace edge
