// The rows of one tile against one block of positions: scores, weights, outputs, and their merge into what the blocks before
// gave. Scores are queries [rows][D] by K [D][32 tokens], outputs are weights [rows][128 tokens] by V [128 tokens][D].
#pragma once
#include "attention_product.h"

namespace edge {
namespace {

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

}  // namespace
}  // namespace edge
