// The matrix product of attention, for any SIMD instruction set: a tile of rows by a panel of two registers of columns, one
// accumulator a cell over the whole sum, so that order and rounding are those of the plain loops. Include it behind `Lanes`
// (lanes_*.h) and
//   struct Register {               // one machine register of floats
//     static constexpr int FLOATS;  // in it: 4, 8 or 16
//     static constexpr int ROWS;    // of a tile: ROWS * 2 + 3 registers are live
//     static V zero(), broadcast(const float *), load(const float *), load(const uint16_t *fp16), fma(a, b, c);
//     static void store(float *, V);
//   };
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

}  // namespace
}  // namespace edge
