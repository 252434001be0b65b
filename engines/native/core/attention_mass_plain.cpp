// What rows give to pages, as plain loops: the twin of attention_mass.h.
#include "attention.h"
#include "tables.h"

namespace edge::plain {
namespace {

// K of a token in a page, as floats [D].
void read_key(Part part, int dim, int token, float *to) {
  if (part.format == PageFormat::fp16) {
    for (int d = 0; d < dim; ++d) to[d] = half_to_float(part.halves()[d * PAGE_TOKENS + token]);
    return;
  }
  const SealedPart layout(0, part.format, dim);
  const uint32_t *words = reinterpret_cast<const uint32_t *>(part.bytes);
  const uint16_t *scales = reinterpret_cast<const uint16_t *>(part.bytes + layout.scales_offset());
  const uint16_t *minima = reinterpret_cast<const uint16_t *>(part.bytes + layout.minima_offset());
  for (int d = 0; d < dim; ++d) {
    const uint32_t value = words[layout.word_of(token, d)] >> layout.shift_of(token, d) & ((1u << layout.bits) - 1);
    to[d] = fused(float(value), half_to_float(scales[d]), half_to_float(minima[d]));
  }
}

// Of one row on one page.
void weigh_page(const AttendParams &p, int row, int page, float *key, float *most, float *power) {
  const int dim = p.pages.head_dim;
  const Range seen = visible_of_page(position_of_row(p, row), p.window, page);
  const Part part = part_of(p.pages, p.seq, page, 0, p.kv_head);
  const float *query = query_of_row(p, row);
  float scores[PAGE_TOKENS], lanes[16] = {};
  *most = NO_MAXIMUM;
  for (int token = seen.begin; token < seen.end; ++token) {
    float sum = 0.0f;
    read_key(part, dim, token, key);
    for (int d = 0; d < dim; ++d) sum = fused(query[d], key[d], sum);
    scores[token] = page_score_of(sum, p.soft_cap);
    *most = larger(*most, scores[token]);
  }
  for (int token = seen.begin; token < seen.end; ++token) lanes[token % 16] += power_of<0>(scores[token] - *most);
  *power = sum_lanes(lanes);
}

}  // namespace

void weigh_pages(const MassParams &p) {
  const AttendParams &task = p.rows;
  const int all = (task.token_end - task.token_begin) * heads_a_token(task);
  const SeenPages seen = pages_of_rows(task);
  float *const maxima = p.powers, *const powers = p.powers + p.stride;
  for (int row = 0; row < all; ++row) {
    float maximum = NO_MAXIMUM, lanes[16] = {};
    for (int page = seen.begin; page < seen.end; ++page) {
      weigh_page(task, row, page, task.scratch, maxima + page, powers + page);
      maximum = larger(maximum, maxima[page]);
    }
    for (int page = seen.begin; page < seen.end; ++page) {
      lanes[page % 16] = fused(powers[page], power_of<0>(maxima[page] - maximum), lanes[page % 16]);
    }
    const float total = sum_lanes(lanes);
    for (int page = seen.begin; page < seen.end; ++page) {
      const float share = share_of(powers[page], power_of<0>(maxima[page] - maximum), total);
      __atomic_fetch_add(p.mass + page, mass_of(share), __ATOMIC_RELAXED);
    }
  }
}

}  // namespace edge::plain
