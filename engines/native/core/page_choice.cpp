#include "page_choice.h"

#include <algorithm>

#include "attention.h"

namespace edge {
namespace {

bool is_optional(const int32_t *table, int32_t page) { return page > 0 && format_of(table[page * 2]) != PageFormat::fp16; }

}  // namespace

int32_t count_optional(const int32_t *table, int32_t pages) {
  int32_t count = 0;
  for (int32_t page = 1; page < pages; ++page) count += is_optional(table, page);
  return count;
}

void choose_pages(const int32_t *table, int32_t pages, int32_t read, const float *ranks, uint64_t *keys, int32_t *words) {
  int32_t count = 0;
  for (int32_t page = 1; page < pages; ++page) {
    // Ranks are not negative, so their order is that of their bits, and an order for what is no number too.
    if (is_optional(table, page)) keys[count++] = uint64_t{bits_of(ranks[page])} << 32 | uint32_t(page);
  }
  std::nth_element(keys, keys + read - 1, keys + count, [](uint64_t a, uint64_t b) { return a > b; });
  const uint64_t last = keys[read - 1];
  for (int32_t page = 0; page < pages; ++page) {
    if (is_optional(table, page) && (uint64_t{bits_of(ranks[page])} << 32 | uint32_t(page)) < last) continue;
    *words++ = table[page * 2];
    *words++ = table[page * 2 + 1];
  }
}

RowMass mass_of_row(const float *partials, int32_t blocks, int32_t rows, int32_t row, int32_t head_dim) {
  const int64_t stride = int64_t{rows} * (2 + head_dim);
  partials += int64_t{row} * (2 + head_dim);
  RowMass all{NO_MAXIMUM, 0.0f};
  for (int32_t block = 0; block < blocks; ++block, partials += stride) {
    const float both = larger(all.maximum, partials[0]);
    all.total = merged(all.total, power_of<0>(all.maximum - both), partials[1], power_of<0>(partials[0] - both));
    all.maximum = both;
  }
  return all;
}

float omitted_share(RowMass read, RowMass all) {
  const float share = 1.0f - read.total * power_of<0>(read.maximum - all.maximum) / all.total;
  return share > 0.0f ? share : 0.0f;
}

}  // namespace edge
