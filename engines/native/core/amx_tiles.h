// AMX tiles as the processor has them: the `Tiles` of amx_product.h. Written in assembly because the compilers' intrinsics are
// macros that want a tile's number as a literal. tests/amx_emulated.h is the same interface in plain C++.
#pragma once
#include <cstdint>

namespace edge {
namespace {

// The 64 bytes that ldtilecfg reads (Intel SDM, volume 1, chapter 18).
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};  // of tile i
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

struct AmxTiles {
  static void configure(const TileConfig &config) { asm volatile("ldtilecfg %0" : : "m"(config)); }
  static void release() { asm volatile("tilerelease"); }  // the system then has no tiles to save at a switch
  template <int TILE>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(TILE));
  }
  template <int TILE>
  static void load(const void *at, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(at), "r"(stride), "i"(TILE) : "memory");
  }
  template <int TILE>
  static void store(void *at, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(at), "r"(stride), "i"(TILE) : "memory");
  }
  // sums[m][n] += a[m][4 k + i] * b[k][4 n + i]; a signed, b signed or unsigned.
  template <int SUMS, int A, int B>
  static void add_signed() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(SUMS), "i"(A), "i"(B));
  }
  template <int SUMS, int A, int B>
  static void add_unsigned() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(SUMS), "i"(A), "i"(B));
  }
};

}  // namespace
}  // namespace edge
