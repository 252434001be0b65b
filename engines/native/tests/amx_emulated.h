// AMX tiles in plain C++: the `Tiles` of amx_product.h where no processor has them. Semantics: Intel SDM, volume 2,
// TILELOADD, TILESTORED, TILEZERO, TDPBSSD, TDPBSUD. What a processor answers with a fault is a failure of the test.
#pragma once
#include <cstring>

#include "amx_tiles.h"
#include "expect.h"

namespace edge {
namespace {

class EmulatedTiles {
 public:
  static inline int configured = 0, products = 0;

  static void configure(const TileConfig &config) {
    expect(config.palette == 1 && config.start_row == 0, "tiles: palette %d", config.palette);
    for (int tile = 0; tile < 16; ++tile) {
      const bool none = config.rows[tile] == 0 && config.row_bytes[tile] == 0, known = tile < 8;
      expect(none || (known && config.rows[tile] && config.rows[tile] <= 16 && config.row_bytes[tile] <= 64),
             "tiles: shape of %d", tile);
    }
    config_ = config;
    std::memset(tiles_, 0, sizeof tiles_);
    ++configured;
  }
  static void release() {
    config_ = TileConfig();
    --configured;
  }
  template <int TILE>
  static void zero() {
    need<TILE>();
    std::memset(tiles_[TILE], 0, sizeof tiles_[TILE]);
  }
  template <int TILE>
  static void load(const void *at, int64_t stride) {
    need<TILE>();
    std::memset(tiles_[TILE], 0, sizeof tiles_[TILE]);
    for (int row = 0; row < config_.rows[TILE]; ++row) {
      std::memcpy(tiles_[TILE][row], static_cast<const uint8_t *>(at) + row * stride, config_.row_bytes[TILE]);
    }
  }
  template <int TILE>
  static void store(void *at, int64_t stride) {
    need<TILE>();
    for (int row = 0; row < config_.rows[TILE]; ++row) {
      std::memcpy(static_cast<uint8_t *>(at) + row * stride, tiles_[TILE][row], config_.row_bytes[TILE]);
    }
  }
  template <int SUMS, int A, int B>
  static void add_signed() {
    add<SUMS, A, B, int8_t>();
  }
  template <int SUMS, int A, int B>
  static void add_unsigned() {
    add<SUMS, A, B, uint8_t>();
  }

 private:
  template <int TILE>
  static void need() {
    expect(config_.rows[TILE] != 0, "tiles: tile %d is used and not configured", TILE);
  }
  template <int SUMS, int A, int B, class Weight>
  static void add() {
    need<SUMS>(), need<A>(), need<B>();
    expect(SUMS != A && SUMS != B && A != B, "tiles: %d, %d and %d are not three", SUMS, A, B);
    const int rows = config_.rows[SUMS], columns = config_.row_bytes[SUMS] / 4, fours = config_.row_bytes[A] / 4;
    expect(config_.rows[A] == rows && config_.rows[B] == fours && config_.row_bytes[B] == columns * 4, "tiles: shapes of %d",
           SUMS);
    for (int m = 0; m < rows; ++m) {
      for (int n = 0; n < columns; ++n) {
        int32_t sum;
        std::memcpy(&sum, tiles_[SUMS][m] + 4 * n, 4);
        for (int i = 0; i < 4 * fours; ++i) {
          sum += static_cast<int8_t>(tiles_[A][m][i]) * static_cast<Weight>(tiles_[B][i / 4][4 * n + i % 4]);
        }
        std::memcpy(tiles_[SUMS][m] + 4 * n, &sum, 4);
      }
    }
    ++products;
  }

  static inline TileConfig config_;
  static inline uint8_t tiles_[8][16][64];
};

}  // namespace
}  // namespace edge
