// Which pages a decode row reads that is not to read all. Owns: the choice by rank, what a choice leaves out. Needs: ranks of
// kernels. Never: scores, attention.
//
// The first page (the sink) and pages whose K is fp16 (open, or not sealed) are always read; of the others the best.
#pragma once
#include <cstdint>

#include "kernels.h"

namespace edge {

// Pages [0, pages) of a sequence, `table` [pages][2], that may be left out.
int32_t count_optional(const int32_t *table, int32_t pages);

// The words [chosen][2] of the pages that are always read and of the `read` best of the others, in ascending order; of equal
// ranks the later page. `read` is less than count_optional, `keys` room for one a page.
void choose_pages(const int32_t *table, int32_t pages, int32_t read, const float *ranks, uint64_t *keys, int32_t *words);

// What a row gives to positions together: total * 2^maximum.
struct RowMass {
  float maximum, total;
};
// Of row `row` from partials of `rows` rows over `blocks` blocks (AttendParams).
RowMass mass_of_row(const float *partials, int32_t blocks, int32_t rows, int32_t row, int32_t head_dim);

// The share of the softmax, 0 to 1, that `read` lacks of `all`.
float omitted_share(RowMass read, RowMass all);

}  // namespace edge
