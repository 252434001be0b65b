// Paged attention for any SIMD instruction set. Include it in one file a set, behind `Lanes` (lanes_*.h) and
//   struct Register {               // one machine register of floats
//     static constexpr int FLOATS;  // in it: 4, 8 or 16
//     static constexpr int ROWS;    // of a tile: ROWS * 2 + 3 registers are live
//     static V zero(), broadcast(const float *), load(const float *), load(const uint16_t *fp16), fma(a, b, c);
//     static void store(float *, V);
//   };
//
// Both products of attention are the same small matrix product: a tile of rows by a panel of two registers of columns, one
// accumulator a cell over the whole sum, so that order and rounding are those of the plain loops. Scores: queries [rows][D] by
// K [D][32 tokens]. Outputs: weights [rows][128 tokens] by V [128 tokens][D]. Tasks of more than one tile turn a block's K and
// V to fp32 panels once; a single tile (decode) reads the fp16 pages itself and prefetches one block ahead.
#pragma once
#include "attention.h"

namespace edge {
namespace {

constexpr int PANEL = 2 * Register::FLOATS;  // columns
static_assert(Register::ROWS <= TILE_ROWS && PAGE_TOKENS % PANEL == 0, "a tile fits its scratch, a page is whole panels");

// Into the second-level cache: scattered pages came at 19 GB/s a core, and at 12 into the first, whose few miss buffers wait.
void prefetch(const uint16_t *line) { __builtin_prefetch(line, 0, 2); }

// c[rows][columns] (+)= a[rows][count] * b[count][columns]; rows of a and c are TILE_STRIDE apart. A sum goes on from c where
// `resume` is set. Where b is a page, every step also prefetches as much as it reads, from `ahead` on.
template <int ROWS, int REGISTERS, class Element>
void tile(int count, const float *a, const Element *b, int64_t b_stride, float *c, bool resume, const uint16_t *ahead) {
  typename Register::V sums[ROWS][REGISTERS];
  for (int r = 0; r < ROWS; ++r) {
    for (int i = 0; i < REGISTERS; ++i) {
      sums[r][i] = resume ? Register::load(c + r * TILE_STRIDE + i * Register::FLOATS) : Register::zero();
    }
  }
  for (int k = 0; k < count; ++k, b += b_stride) {
    if constexpr (sizeof(Element) == 2) prefetch(ahead + k * PANEL);
    typename Register::V columns[REGISTERS];
    for (int i = 0; i < REGISTERS; ++i) columns[i] = Register::load(b + i * Register::FLOATS);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r) {
      const typename Register::V row = Register::broadcast(a + r * TILE_STRIDE + k);
      for (int i = 0; i < REGISTERS; ++i) sums[r][i] = Register::fma(row, columns[i], sums[r][i]);
    }
  }
  for (int r = 0; r < ROWS; ++r) {
    for (int i = 0; i < REGISTERS; ++i) Register::store(c + r * TILE_STRIDE + i * Register::FLOATS, sums[r][i]);
  }
}

// The tile of `rows` (1 to ROWS) rows and `columns` (PANEL, or fewer where a head dim ends: one register) columns.
template <int ROWS = Register::ROWS, class Element>
void multiply(int rows, int columns, int count, const float *a, const Element *b, int64_t b_stride, float *c, bool resume,
              const uint16_t *ahead) {
  if constexpr (ROWS > 1) {
    if (rows < ROWS) return multiply<ROWS - 1>(rows, columns, count, a, b, b_stride, c, resume, ahead);
  }
  if (columns < PANEL) return tile<ROWS, 1>(count, a, b, b_stride, c, resume, ahead);
  return tile<ROWS, 2>(count, a, b, b_stride, c, resume, ahead);
}

// A panel of an fp16 matrix as fp32 [count][PANEL].
void widen(int count, int columns, const uint16_t *from, int64_t stride, float *to) {
  for (int k = 0; k < count; ++k, from += stride, to += PANEL) {
    for (int i = 0; i < columns; i += Register::FLOATS) Register::store(to + i, Register::load(from + i));
  }
}

// Lanes of x whose index, counted from `first`, is in the range; `other` in the rest.
Lanes within(Lanes x, int first, Range range, Lanes other) {
  if (range.begin <= first && first + 16 <= range.end) return x;
  static const float INDEX[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Lanes index = Lanes::load(INDEX) + Lanes(float(first));
  x = select_less(index, Lanes(float(range.end)), x, other);
  return select_less(index, Lanes(float(range.begin)), other, x);
}

// The largest of one row's scores in `seen`, after the soft cap, which is applied in place, over whole 16s around `span`.
float cap_scores(float *scores, Range span, Range seen, float soft_cap) {
  Lanes largest(NO_MAXIMUM);
  for (int i = span.begin / 16 * 16; i < span.end; i += 16) {
    Lanes score = Lanes::load(scores + i);
    if (soft_cap > 0.0f) {
      score = capped(score, Lanes(soft_cap));
      score.store(scores + i);
    }
    largest = larger(largest, within(score, i, seen, Lanes(NO_MAXIMUM)));
  }
  return largest_lane(largest);
}

// Scores to weights exp(score - maximum), 0 outside `seen`, whatever stood there; returns their sum.
float weigh_scores(float *scores, Range span, Range seen, float maximum) {
  Lanes sum(0.0f);
  for (int i = span.begin / 16 * 16; i < span.end; i += 16) {
    const Lanes weight = within(exponential(Lanes::load(scores + i) - Lanes(maximum)), i, seen, Lanes(0.0f));
    weight.store(scores + i);
    sum = sum + weight;
  }
  return sum_lanes(sum);
}

void copy_row(const float *from, float *to, int dim) {
  for (int d = 0; d < dim; d += 16) positive_zero(Lanes::load(from + d)).store(to + d);
}

void merge_row(float *row, float old_factor, const float *block, float block_factor, int dim) {
  for (int d = 0; d < dim; d += 16) {
    const Lanes outputs = positive_zero(Lanes::load(block + d));
    merged(Lanes::load(row + d), Lanes(old_factor), outputs, Lanes(block_factor)).store(row + d);
  }
}

void finish_row(float *row, float maximum, float sum, int dim) {
  for (int d = 0; d < dim; d += 16) {
    (maximum == NO_MAXIMUM ? Lanes(0.0f) : Lanes::load(row + d) / Lanes(sum)).store(row + d);
  }
}

// Rows [row_begin, row_begin + rows) of a task, in one tile, against one block.
class Tile {
 public:
  Tile(const AttendParams &p, const Scratch &scratch, int row_begin, int rows)
      : p_(p),
        scratch_(scratch),
        row_begin_(row_begin),
        rows_(rows),
        dim_(p.pages.head_dim),
        group_(p.pages.num_heads / p.pages.num_kv_heads) {}

  // `wide`: the block's K and V are in the scratch as fp32 panels; else the pages are read.
  void run(int block, bool wide) {
    span_ = visible(position(0), position(rows_ - 1), p_.window, block);
    for (float &maximum : maxima_) maximum = NO_MAXIMUM;
    if (span_.empty()) return;
    for (int r = 0; r < rows_; ++r) {
      const float *query = query_of(p_, token(r), head(r));
      for (int d = 0; d < dim_; d += 16) Lanes::load(query + d).store(scratch_.queries + r * TILE_STRIDE + d);
    }
    wide ? score_wide() : score_pages(block);
    // Two loops, since a row's maximum is a chain of dependent steps: those of several rows overlap.
    for (int r = 0; r < rows_; ++r) {
      maxima_[r] = cap_scores(scratch_.scores + r * TILE_STRIDE, span_, seen(r, block), p_.soft_cap);
    }
    for (int r = 0; r < rows_; ++r) {
      sums_[r] = weigh_scores(scratch_.scores + r * TILE_STRIDE, span_, seen(r, block), maxima_[r]);
    }
    wide ? weigh_wide() : weigh_pages(block);
  }

  void write_partials(float *partials) const {  // those of the tile's first row
    for (int r = 0; r < rows_; ++r, partials += 2 + dim_) {
      partials[0] = maxima_[r];
      partials[1] = sums_[r];
      if (maxima_[r] != NO_MAXIMUM) copy_row(scratch_.outputs + r * TILE_STRIDE, partials + 2, dim_);
    }
  }

  void merge(float *maxima, float *sums) const {  // those of the tile's first row
    const Lanes old = Lanes::load(maxima), fresh = Lanes::load(maxima_), both = larger(old, fresh);
    float old_factors[16], block_factors[16];
    exponential(old - both).store(old_factors);
    exponential(fresh - both).store(block_factors);
    for (int r = 0; r < rows_; ++r) {
      if (maxima_[r] == NO_MAXIMUM) continue;
      const float *block = scratch_.outputs + r * TILE_STRIDE;
      float *row = output_of(p_.out, p_.out_stride, token(r), p_.kv_head * group_, head(r), dim_);
      if (maxima[r] == NO_MAXIMUM) {
        maxima[r] = maxima_[r];
        sums[r] = sums_[r];
        copy_row(block, row, dim_);
      } else {
        maxima[r] = larger(maxima[r], maxima_[r]);
        sums[r] = merged(sums[r], old_factors[r], sums_[r], block_factors[r]);
        merge_row(row, old_factors[r], block, block_factors[r], dim_);
      }
    }
  }

 private:
  int token(int r) const { return p_.token_begin + (row_begin_ + r) / group_; }
  int head(int r) const { return (row_begin_ + r) % group_; }
  int position(int r) const { return p_.row_pos[token(r)]; }
  Range seen(int r, int block) const { return visible(position(r), position(r), p_.window, block); }
  int panel_width(int begin) const { return dim_ - begin < PANEL ? dim_ - begin : PANEL; }

  void score_wide() {
    for (int column = span_.begin / PANEL * PANEL; column < span_.end; column += PANEL) {
      multiply(rows_, PANEL, dim_, scratch_.queries, scratch_.keys + int64_t(column) * dim_, PANEL, scratch_.scores + column,
               false, nullptr);
    }
  }

  void weigh_wide() {
    for (int d = 0; d < dim_; d += PANEL) {
      multiply(rows_, panel_width(d), span_.end - span_.begin, scratch_.scores + span_.begin,
               scratch_.values + d * BLOCK_TOKENS + span_.begin * PANEL, PANEL, scratch_.outputs + d, false, nullptr);
    }
  }

  // A step of `tile` reads a cache line's worth of K or of V, and a page has as many of one as of the other: the steps over
  // the block's K prefetch its V, page by page, and those over its V the K of the next block.
  void score_pages(int block) {
    for (int page = first_page(block); page <= last_page(block); ++page) {
      const uint16_t *keys = keys_of(page), *ahead = values_of(page);
      float *scores = scratch_.scores + (page - block * BLOCK_PAGES) * PAGE_TOKENS;
      for (int column = 0; column < PAGE_TOKENS; column += PANEL) {
        multiply(rows_, PANEL, dim_, scratch_.queries, keys + column, PAGE_TOKENS, scores + column, false,
                 ahead + column * dim_);
      }
    }
  }

  void weigh_pages(int block) {
    for (int page = first_page(block); page <= last_page(block); ++page) {
      const int start = (page - block * BLOCK_PAGES) * PAGE_TOKENS;
      const int begin = start < span_.begin ? span_.begin : start;
      const int end = start + PAGE_TOKENS < span_.end ? start + PAGE_TOKENS : span_.end;
      const uint16_t *values = values_of(page) + (begin - start) * dim_;
      const uint16_t *ahead = keys_of(is_seen(page + BLOCK_PAGES) ? page + BLOCK_PAGES : page);
      for (int d = 0; d < dim_; d += PANEL, ahead += PAGE_TOKENS * PANEL) {
        multiply(rows_, panel_width(d), end - begin, scratch_.scores + begin, values + d, dim_, scratch_.outputs + d,
                 page > first_page(block), ahead);
      }
    }
  }

  int first_page(int block) const { return block * BLOCK_PAGES + span_.begin / PAGE_TOKENS; }
  int last_page(int block) const { return block * BLOCK_PAGES + (span_.end - 1) / PAGE_TOKENS; }
  bool is_seen(int page) const { return page < p_.block_end * BLOCK_PAGES && page * PAGE_TOKENS <= position(rows_ - 1); }
  const uint16_t *keys_of(int page) const { return page_of(p_.pages, p_.seq, page, 0, p_.kv_head); }
  const uint16_t *values_of(int page) const { return page_of(p_.pages, p_.seq, page, 1, p_.kv_head); }

  const AttendParams &p_;
  const Scratch &scratch_;
  const int row_begin_, rows_, dim_, group_;
  Range span_;
  float maxima_[TILE_ROWS], sums_[TILE_ROWS];  // of the block
};

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
