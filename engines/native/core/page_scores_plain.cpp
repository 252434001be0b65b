// What rows will about give to pages, as plain loops: the twins of page_scores.h.
#include "attention.h"
#include "tables.h"

namespace edge::plain {

void score_pages(const PageScoreParams &p) {
  const int dim = p.pages.head_dim;
  for (int page = p.page_begin; page < p.page_end; ++page) {
    const Part part = part_of(p.pages, p.seq, page, 0, p.kv_head);
    const SealedPart layout(0, part.format, dim);
    const uint16_t *scales = reinterpret_cast<const uint16_t *>(part.bytes + layout.scales_offset());
    const uint16_t *minima = reinterpret_cast<const uint16_t *>(part.bytes + layout.minima_offset());
    for (int head = 0; head < p.heads; ++head) {
      float &found = p.scores[head * p.stride + page];
      if (part.format == PageFormat::fp16) {
        found = NO_MAXIMUM;
        continue;
      }
      const float *query = p.queries + int64_t(head) * dim;
      float low[16] = {}, range[16] = {};
      for (int d = 0; d < dim; ++d) {
        low[d % 16] = fused(query[d], half_to_float(minima[d]), low[d % 16]);
        range[d % 16] = fused(reach_of(query[d]), half_to_float(scales[d]), range[d % 16]);
      }
      for (int i = 0; i < 16; ++i) low[i] = fused(range[i], most_level(part.format), low[i]);
      found = sum_lanes(low);
    }
  }
}

void rank(const RankParams &p) {
  for (int head = 0; head < p.heads; ++head) {
    float *scores = p.scores + head * p.stride;
    blank_unranked(scores, p.pages);
    const int padded = (p.pages + 15) / 16 * 16;
    float maximum = NO_MAXIMUM, total[16] = {};
    for (int page = 0; page < padded; ++page) {
      scores[page] = page_score_of(scores[page], p.soft_cap);
      maximum = larger(maximum, scores[page]);
    }
    for (int page = 0; page < padded; ++page) {
      scores[page] = power_of<0>(scores[page] - maximum);
      total[page % 16] += scores[page];
    }
    const float all = sum_lanes(total);
    for (int page = 0; page < padded; ++page) {
      const float share = scores[page] / all;
      p.ranks[page] = head == 0 ? share : p.ranks[page] + share;
    }
  }
}

}  // namespace edge::plain
