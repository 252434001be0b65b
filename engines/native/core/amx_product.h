// Products of 16 rows and more on tiles, for any `Tiles` (amx_tiles.h, tests/amx_emulated.h) and any `Lanes`. Include it behind
// a lanes_*.h; the file that includes it defines `load_ints`.
//
// A strip is what a tile of weights wants to be: [inputs / 4][16 outputs x 4 inputs]. A group of 32 inputs is 8 rows of it, and
// 16 activation rows by those 32 inputs make 16 x 16 exact int32 sums; what then happens to a sum is what every other
// instruction set does with it. The sums need 4 fp32 operations each, the products a half: tiles wait for lanes.
#pragma once
#include "amx_tiles.h"
#include "strips.h"

namespace edge {
namespace {

constexpr int TILE_ROWS = 16;
constexpr int BLOCK_TILES = 8;   // row tiles that meet a strip in turn, their totals (8 KiB) in L1
constexpr int CHUNK_STEPS = 32;  // steps of a strip unpacked at a time, to 16 KiB in L1, for all row tiles

// 16 int32 as floats, to nearest even.
Lanes load_ints(const int32_t *x);

// Two tiles of sums, as a product takes its time; a pair of tiles for each group size, so that nothing is configured twice.
constexpr int SUMS0 = 0, SUMS1 = 1, ROWS32 = 2, WEIGHTS32 = 3, ROWS16 = 4, WEIGHTS16 = 5;

inline TileConfig tile_shapes() {
  TileConfig config;
  const auto set = [&config](int tile, int rows, int row_bytes) {
    config.rows[tile] = uint8_t(rows);
    config.row_bytes[tile] = uint16_t(row_bytes);
  };
  set(SUMS0, TILE_ROWS, STRIP * 4);
  set(SUMS1, TILE_ROWS, STRIP * 4);
  set(ROWS32, TILE_ROWS, 32);
  set(WEIGHTS32, 32 / 4, STRIP * 4);
  set(ROWS16, TILE_ROWS, 16);
  set(WEIGHTS16, 16 / 4, STRIP * 4);
  return config;
}

// Tiles are configured as long as one of these lives, on its thread.
template <class Tiles>
struct Configured {
  Configured() { Tiles::configure(tile_shapes()); }
  ~Configured() { Tiles::release(); }
  Configured(const Configured &) = delete;
  Configured &operator=(const Configured &) = delete;
};

// Steps [begin, end) of a strip as tiles read them, 512 bytes each: less their zero point, hence signed, where there are no
// minima. int8 with minima stays in the strip and stays unsigned.
inline const uint8_t *unpack(const Weight &w, const uint8_t *strip, int64_t begin, int64_t end, uint8_t *out) {
  if (w.kind == WeightKind::int8) {
    if (w.minima_offset) return strip + begin * 512;
    for (int64_t i = 0; i < (end - begin) * 512; ++i) out[i] = strip[begin * 512 + i] ^ 0x80;
    return out;
  }
  const int zero = w.minima_offset ? 0 : 8;
  for (int64_t step = begin; step < end; ++step) {
    const uint8_t *both = strip + step * 256;
    uint8_t *low = out + (step - begin) * 512, *high = low + 256;
    for (int i = 0; i < 256; ++i) {
      low[i] = uint8_t((both[i] & 15) - zero);
      high[i] = uint8_t((both[i] >> 4) - zero);
    }
  }
  return out;
}

// totals [16 rows][16] = or += 16 rows times steps [begin, end) of a strip; quants: of these steps, from `unpack`.
using TileProduct = void (*)(const Weight &w, const uint8_t *strip, const uint8_t *quants, int64_t begin, int64_t end,
                             const RowStep *rows, float *totals);

template <class Tiles, int GROUP, bool MINIMA, bool SIGNED>
void tile_product(const Weight &w, const uint8_t *strip, const uint8_t *quants, int64_t begin, int64_t end, const RowStep *rows,
                  float *totals) {
  constexpr int GROUPS = STEP / GROUP, X = GROUP == 32 ? ROWS32 : ROWS16, W = GROUP == 32 ? WEIGHTS32 : WEIGHTS16;
  const uint16_t *scales = reinterpret_cast<const uint16_t *>(strip + w.scales_offset);
  const uint16_t *minima = reinterpret_cast<const uint16_t *>(strip + w.minima_offset);
  const int64_t steps = w.inputs / STEP;
  alignas(64) int32_t dots[2][TILE_ROWS * STRIP];
  Lanes sums[TILE_ROWS];
#pragma GCC unroll 16  // else the sums live on the stack
  for (int r = 0; r < TILE_ROWS; ++r) sums[r] = begin ? Lanes::load(totals + r * STRIP) : Lanes(0.0f);

  const auto multiply = [&]<int SUMS>(std::integral_constant<int, SUMS>, int64_t group) __attribute__((always_inline)) {
    const int64_t step = group / GROUPS, inside = group % GROUPS * 16;  // inputs
    Tiles::template zero<SUMS>();
    Tiles::template load<X>(rows[step].quants + inside, steps * int64_t(sizeof(RowStep)));
    Tiles::template load<W>(quants + (step - begin) * 512 + inside * STRIP, STRIP * 4);
    if constexpr (SIGNED) {
      Tiles::template add_signed<SUMS, X, W>();
    } else {
      Tiles::template add_unsigned<SUMS, X, W>();
    }
    Tiles::template store<SUMS>(dots[SUMS], STRIP * 4);
  };
  const auto add = [&](const int32_t *found, int64_t group) __attribute__((always_inline)) {
    const RowStep *inputs = rows + group / GROUPS;
    const Lanes scale = Lanes::load_half(scales + group * STRIP);
    const Lanes minimum = MINIMA ? Lanes::load_half(minima + group * STRIP) : Lanes(0.0f);
#pragma GCC unroll 16
    for (int r = 0; r < TILE_ROWS; ++r) {
      const RowStep &x = inputs[r * steps];
      sums[r] = fused(load_ints(found + r * STRIP), scale * Lanes(x.scale), sums[r]);
      if (MINIMA) sums[r] = fused(minimum, Lanes(GROUP == 16 ? x.sums[group % 2] : x.sum), sums[r]);
    }
  };

  // Two groups at a time: while lanes add the first one's sums, tiles multiply the second.
  int64_t group = begin * GROUPS;
  const int64_t last = end * GROUPS;
  for (; group + 1 < last; group += 2) {
    multiply(std::integral_constant<int, SUMS0>(), group);
    multiply(std::integral_constant<int, SUMS1>(), group + 1);
    add(dots[0], group);
    add(dots[1], group + 1);
  }
  if (group < last) {
    multiply(std::integral_constant<int, SUMS0>(), group);
    add(dots[0], group);
  }
#pragma GCC unroll 16
  for (int r = 0; r < TILE_ROWS; ++r) sums[r].store(totals + r * STRIP);
}

template <class Tiles>
TileProduct find_product(const Weight &w) {
  if (!w.minima_offset) return w.group == 16 ? tile_product<Tiles, 16, false, true> : tile_product<Tiles, 32, false, true>;
  if (w.kind == WeightKind::int4) {
    return w.group == 16 ? tile_product<Tiles, 16, true, true> : tile_product<Tiles, 32, true, true>;
  }
  return w.group == 16 ? tile_product<Tiles, 16, true, false> : tile_product<Tiles, 32, true, false>;
}

// totals [tiles * 16 rows][16] of one strip.
template <class Tiles>
void multiply_strip(const Weight &w, int strip_index, const RowStep *rows, int tiles, float *totals) {
  const TileProduct product = find_product<Tiles>(w);
  const uint8_t *strip = w.data + strip_index * w.strip_bytes;
  const int64_t steps = w.inputs / STEP;
  alignas(64) uint8_t unpacked[CHUNK_STEPS * 512];
  for (int64_t begin = 0; begin < steps; begin += CHUNK_STEPS) {
    const int64_t end = begin + CHUNK_STEPS < steps ? begin + CHUNK_STEPS : steps;
    for (int64_t at = w.strip_bytes * begin / steps; at < w.strip_bytes * end / steps; at += 64) {
      __builtin_prefetch(strip + bytes_ahead(w) + at, 0, 2);
    }
    const uint8_t *quants = unpack(w, strip, begin, end, unpacked);
    for (int tile = 0; tile < tiles; ++tile) {
      product(w, strip, quants, begin, end, rows + tile * TILE_ROWS * steps, totals + tile * TILE_ROWS * STRIP);
    }
  }
}

// Calls store(row, strip, out, out of the last weight) for every row and strip, as for_tiles, over the rows that fill tiles;
// returns how many rows from row_begin on these are.
template <class Tiles, int COUNT, class Store>
int32_t for_tile_blocks(const Weight *const *weights, const Rows *x, int row_begin, int row_end, int strip_begin, int strip_end,
                        Store store) {
  const int32_t rows = (row_end - row_begin) / TILE_ROWS * TILE_ROWS;
  for (int i = 0; i < COUNT; ++i) {
    if (weights[i]->kind == WeightKind::fp16) return 0;
  }
  if (rows == 0) return 0;
  const Configured<Tiles> configured;
  alignas(64) float totals[COUNT][BLOCK_TILES * TILE_ROWS * STRIP];
  const int64_t steps = x->inputs / STEP;
  for (int block = 0; block < rows; block += BLOCK_TILES * TILE_ROWS) {
    const int left = (rows - block) / TILE_ROWS, tiles = left < BLOCK_TILES ? left : BLOCK_TILES, first = row_begin + block;
    for (int strip = strip_begin; strip < strip_end; ++strip) {
      for (int i = 0; i < COUNT; ++i) multiply_strip<Tiles>(*weights[i], strip, x->steps + first * steps, tiles, totals[i]);
      for (int r = 0; r < tiles * TILE_ROWS; ++r) {
        store(first + r, strip, totals[0] + r * STRIP, totals[COUNT - 1] + r * STRIP);
      }
    }
  }
  return rows;
}

// Both return how many rows from p.row_begin on they did: the last 15 at most, and fp16 weights, are left to others.
template <class Tiles>
int32_t matmul_tiles(const MatmulParams &p) {
  return for_tile_blocks<Tiles, 1>(
      &p.weight, p.quantised, p.row_begin, p.row_end, p.strip_begin, p.strip_end,
      [&p](int row, int strip, const float *out, const float *) { store_product(p, row, strip, out); });
}

template <class Tiles>
int32_t gated_tiles(const GatedParams &p) {
  const Weight *weights[2] = {p.gate, p.up};
  return for_tile_blocks<Tiles, 2>(
      weights, p.quantised, p.row_begin, p.row_end, p.strip_begin, p.strip_end,
      [&p](int row, int strip, const float *gate, const float *up) { store_gated(p, row, strip, gate, up); });
}

}  // namespace
}  // namespace edge
