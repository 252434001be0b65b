// Matrix products for any `Lanes`, around the tiles of an instruction set: 1 to MAX_ROWS rows by one strip of 16 outputs.
// Include it behind a lanes_*.h; the file that includes it defines `quantised_tile` below.
//
// A strip is read from memory once: all rows meet it before the next one. Tiles take rows in even shares, so that no
// remainder runs at the speed of a single row. Shares change the order of work, never the arithmetic of an output.
#pragma once
#include <utility>

#include "kernels.h"
#include "math.h"

namespace edge {
namespace {

// How far ahead the first tile of a strip prefetches, to L2, in bytes: what a core asks of memory must never run dry. Strips of
// 12 KiB, two threads: nothing ahead read at 23 GB/s, one to four strips at 37 to 39, into L1 at 33. Two strips of 328 KiB
// crowd L2: 46, where one gets 55. A strip is the least: its scales are read from its first step on.
inline int64_t bytes_ahead(const Weight &w) { return w.strip_bytes <= 64 << 10 ? 2 * w.strip_bytes : w.strip_bytes; }

// From strip `strip` of weight `place` of `count` to what its first tile prefetches, in bytes; 0: nothing. Behind strip_end
// lies another thread's share: what is fetched instead is `upcoming`, a strip's worth at a time.
inline int64_t bytes_ahead(const Weight &w, int strip, int strip_end, int place, int count, const Upcoming &upcoming) {
  const int64_t own = bytes_ahead(w), behind = strip + own / w.strip_bytes - strip_end;
  if (behind < 0) return own;
  if (upcoming.count == 0) return 0;
  const int64_t piece = behind * count + place, offset = piece / upcoming.count * w.strip_bytes;
  if (offset >= upcoming.bytes) return 0;
  const uintptr_t from = reinterpret_cast<uintptr_t>(w.data + strip * w.strip_bytes);
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(upcoming.at[piece % upcoming.count] + offset) - from);
}

// The rows that a product reads: int8 for int4 and int8 weights, fp32 for fp16 weights.
struct Input {
  const Rows *quantised;
  const float *plain;
  int64_t plain_stride;
};

// out[rows][16] = the rows of x from `row` on times one strip. `ahead`: bytes from the strip to what is prefetched; 0: nothing.
using Tile = void (*)(const Weight &w, const uint8_t *strip, int64_t ahead, const Input &x, int64_t row, float *out);

// For int4 and int8 weights, the instruction set's own. Per output: groups ascending, each an exact int32 sum, then
// total = fma(sum, scale * row scale, total) and, with minima, total = fma(minimum, row sum, total).
template <int KIND, int GROUP, bool MINIMA, int ROWS>
void quantised_tile(const Weight &w, const uint8_t *strip, int64_t ahead, const Rows &x, int64_t row, float *out);

// Per output: total = fma(x, weight, total), inputs ascending.
template <int ROWS>
inline void fp16_tile(const Weight &w, const uint8_t *strip, int64_t ahead, const float *x, int64_t stride, float *out) {
  Lanes totals[ROWS];
  for (int r = 0; r < ROWS; ++r) totals[r] = Lanes(0.0f);
  for (int64_t k = 0; k < w.inputs; ++k) {
    if (ahead && k % 2 == 0) __builtin_prefetch(strip + ahead + k * 32, 0, 2);
    Lanes weights = Lanes::load_half(reinterpret_cast<const uint16_t *>(strip) + k * STRIP);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) totals[r] = fused(Lanes(x[r * stride + k]), weights, totals[r]);
  }
  for (int r = 0; r < ROWS; ++r) totals[r].store(out + r * STRIP);
}

template <int KIND, int GROUP, bool MINIMA, int ROWS>
void tile(const Weight &w, const uint8_t *strip, int64_t ahead, const Input &x, int64_t row, float *out) {
  if constexpr (KIND == WeightKind::fp16) {
    fp16_tile<ROWS>(w, strip, ahead, x.plain + row * x.plain_stride, x.plain_stride, out);
  } else {
    quantised_tile<KIND, GROUP, MINIMA, ROWS>(w, strip, ahead, *x.quantised, row, out);
  }
}

// The tiles of 1 to MAX_ROWS rows of one kind of matrix.
template <int KIND, int GROUP, bool MINIMA, int... LESS_ONE>
const Tile *tiles_of(std::integer_sequence<int, LESS_ONE...>) {
  static constexpr Tile TILES[] = {tile<KIND, GROUP, MINIMA, LESS_ONE + 1>...};
  return TILES;
}

template <int KIND, int MAX_ROWS>
const Tile *quantised_tiles(const Weight &w) {
  constexpr std::make_integer_sequence<int, MAX_ROWS> COUNTS;
  if (w.group == 16) return w.minima_offset ? tiles_of<KIND, 16, true>(COUNTS) : tiles_of<KIND, 16, false>(COUNTS);
  return w.minima_offset ? tiles_of<KIND, 32, true>(COUNTS) : tiles_of<KIND, 32, false>(COUNTS);
}

template <int MAX_ROWS>
inline const Tile *find_tiles(const Weight &w) {
  if (w.kind == WeightKind::fp16) return tiles_of<WeightKind::fp16, 0, false>(std::make_integer_sequence<int, MAX_ROWS>());
  return w.kind == WeightKind::int4 ? quantised_tiles<WeightKind::int4, MAX_ROWS>(w)
                                    : quantised_tiles<WeightKind::int8, MAX_ROWS>(w);
}

// Rows of the next tile: the rest in even shares of at most `most`.
inline int next_rows(int rest, int most) {
  int tiles = (rest + most - 1) / most;
  return (rest + tiles - 1) / tiles;
}

// Calls store(row, strip, rows, out) for every tile; out is [rows][16] of each of the COUNT weights.
template <int MAX_ROWS, int COUNT, class Store>
inline void for_tiles(const Weight *const *weights, const Input &x, int row_begin, int row_end, int strip_begin, int strip_end,
                      const Upcoming &upcoming, Store store) {
  const Tile *tiles[COUNT];
  for (int i = 0; i < COUNT; ++i) tiles[i] = find_tiles<MAX_ROWS>(*weights[i]);
  alignas(64) float out[COUNT][MAX_ROWS * STRIP];
  for (int strip = strip_begin; strip < strip_end; ++strip) {
    for (int row = row_begin, rows; row < row_end; row += rows) {
      rows = next_rows(row_end - row, MAX_ROWS);
      for (int i = 0; i < COUNT; ++i) {
        const Weight &w = *weights[i];
        const int64_t ahead = row == row_begin ? bytes_ahead(w, strip, strip_end, i, COUNT, upcoming) : 0;
        tiles[i][rows - 1](w, w.data + strip * w.strip_bytes, ahead, x, row, out[i]);
      }
      for (int r = 0; r < rows; ++r) store(row + r, strip, out[0] + r * STRIP, out[COUNT - 1] + r * STRIP);
    }
  }
}

// 16 results, or as many as the matrix has outputs from `first` on.
inline void store_outputs(Lanes result, float *y, int first, int outputs) {
  if (outputs - first >= STRIP) {
    result.store(y);
  } else {
    result.store_first(y, outputs - first);
  }
}

inline void store_product(const MatmulParams &p, int row, int strip, const float *out) {
  const int first = strip * STRIP, count = p.weight->outputs - first;
  float *y = p.y + row * p.y_stride + first;
  Lanes result = Lanes::load(out);
  if (p.add) result = (count >= STRIP ? Lanes::load(y) : Lanes::load_first(y, count)) + result;
  store_outputs(result, y, first, p.weight->outputs);
}

template <int MAX_ROWS>
inline void matmul_strips(const MatmulParams &p) {
  const Input x{p.quantised, p.plain, p.plain_stride};
  for_tiles<MAX_ROWS, 1>(&p.weight, x, p.row_begin, p.row_end, p.strip_begin, p.strip_end, p.upcoming,
                         [&p](int row, int strip, const float *out, const float *) { store_product(p, row, strip, out); });
}

inline Lanes activate(Lanes x, int activation) {
  if (activation == Activation::silu) return silu(x);
  return activation == Activation::gelu_tanh ? gelu_tanh(x) : x;
}

inline void store_gated(const GatedParams &p, int row, int strip, const float *gate, const float *up) {
  float *y = p.y + row * p.y_stride + strip * STRIP;
  store_outputs(activate(Lanes::load(gate), p.activation) * Lanes::load(up), y, strip * STRIP, p.gate->outputs);
}

template <int MAX_ROWS>
inline void gated_strips(const GatedParams &p) {
  const Input x{p.quantised, p.plain, p.plain_stride};
  const Weight *weights[2] = {p.gate, p.up};
  for_tiles<MAX_ROWS, 2>(
      weights, x, p.row_begin, p.row_end, p.strip_begin, p.strip_end, p.upcoming,
      [&p](int row, int strip, const float *gate, const float *up) { store_gated(p, row, strip, gate, up); });
}

}  // namespace
}  // namespace edge
