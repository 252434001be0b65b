// What rows will about give to pages, for any SIMD instruction set. Include it behind what attention_panels.h asks for.
#pragma once
#include "attention_sealed.h"

namespace edge {
namespace {

constexpr int SCORED_HEADS = 4;  // side by side
constexpr int PAGES_AHEAD = 6;   // whose scales are on their way: those of one page lie far from those of the next

inline void prefetch_scales(const LayerPages &pages, int seq, int page, int kv_head) {
  const Part part = part_of(pages, seq, page, 0, kv_head);
  if (part.format == PageFormat::fp16) return;
  const SealedPart layout(0, part.format, pages.head_dim);
  for (int64_t at = layout.scales_offset(); at < layout.bytes(); at += LINE) prefetch_near(part.bytes + at);
}

// Scores of HEADS rows of q [D] on one page, to scores[row * stride]; `reaches`: reach_of each q.
template <int HEADS>
void score_page(const Sealed &keys, int dim, float levels, const float *queries, const float *reaches, float *scores,
                int64_t stride) {
  Lanes low[HEADS], range[HEADS];
  for (int r = 0; r < HEADS; ++r) low[r] = range[r] = Lanes(0.0f);
  for (int d = 0; d < dim; d += 16) {
    const Lanes minimum = Lanes::load_half(keys.minima + d), scale = Lanes::load_half(keys.scales + d);
#pragma GCC unroll 4
    for (int r = 0; r < HEADS; ++r) {
      low[r] = fused(Lanes::load(queries + r * dim + d), minimum, low[r]);
      range[r] = fused(Lanes::load(reaches + r * dim + d), scale, range[r]);
    }
  }
  for (int r = 0; r < HEADS; ++r) scores[r * stride] = sum_lanes(fused(range[r], Lanes(levels), low[r]));
}

void score_pages_lanes(const PageScoreParams &p) {
  const int dim = p.pages.head_dim;
  for (int head = 0; head < p.heads; head += SCORED_HEADS) {
    const int heads = p.heads - head < SCORED_HEADS ? p.heads - head : SCORED_HEADS;
    const float *queries = p.queries + int64_t(head) * dim;
    float reaches[SCORED_HEADS * MAX_HEAD_DIM];
    for (int i = 0; i < heads * dim; i += 16) reach_of(Lanes::load(queries + i)).store(reaches + i);
    for (int page = p.page_begin; page < p.page_end; ++page) {
      if (page + PAGES_AHEAD < p.page_end) prefetch_scales(p.pages, p.seq, page + PAGES_AHEAD, p.kv_head);
      float *scores = p.scores + head * p.stride + page;
      const Part part = part_of(p.pages, p.seq, page, 0, p.kv_head);
      if (part.format == PageFormat::fp16) {
        for (int r = 0; r < heads; ++r) scores[r * p.stride] = NO_MAXIMUM;
        continue;
      }
      const Sealed keys(part, 0, dim);
      const float levels = most_level(part.format);
      switch (heads) {
        case 1: score_page<1>(keys, dim, levels, queries, reaches, scores, p.stride); break;
        case 2: score_page<2>(keys, dim, levels, queries, reaches, scores, p.stride); break;
        case 3: score_page<3>(keys, dim, levels, queries, reaches, scores, p.stride); break;
        default: score_page<4>(keys, dim, levels, queries, reaches, scores, p.stride);
      }
    }
  }
}

void rank_lanes(const RankParams &p) {
  for (int head = 0; head < p.heads; ++head) {
    float *scores = p.scores + head * p.stride;
    blank_unranked(scores, p.pages);
    Lanes most(NO_MAXIMUM), total(0.0f);
    for (int page = 0; page < p.pages; page += 16) {
      const Lanes score = page_score_of(Lanes::load(scores + page), p.soft_cap);
      score.store(scores + page);
      most = larger(most, score);
    }
    const Lanes maximum(largest_lane(most));
    for (int page = 0; page < p.pages; page += 16) {
      const Lanes power = power_of<0>(Lanes::load(scores + page) - maximum);
      power.store(scores + page);
      total = total + power;
    }
    const Lanes all(sum_lanes(total));
    for (int page = 0; page < p.pages; page += 16) {
      const Lanes share = Lanes::load(scores + page) / all;
      (head == 0 ? share : Lanes::load(p.ranks + page) + share).store(p.ranks + page);
    }
  }
}

}  // namespace
}  // namespace edge
