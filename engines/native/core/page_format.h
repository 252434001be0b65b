// Where the numbers of a page lie, in each format (edge/contract.py, "pages"). Owns nothing. Needs: the contract. Never: maths.
#pragma once
#include "contract.h"

namespace edge {

constexpr bool is_key(int32_t side) { return side == 0; }

constexpr bool can_hold(int32_t side, int32_t format, int32_t head_dim) {
  if (format == PageFormat::fp16) return true;
  return head_dim % (format == PageFormat::int2 ? VALUE_GROUPS[format] : 8) == 0 &&
         !(is_key(side) && format == PageFormat::int2);
}

// One kv head's part of a sealed extent: words, scales, minima, in this order. Shifts, since attention asks for every page.
struct SealedPart {
  int32_t side, bits, head_dim;
  int32_t count_shift;  // 2^it values a word
  int32_t group_shift;  // 2^it channels of a token's V share a scale

  constexpr SealedPart(int32_t side, int32_t format, int32_t head_dim)
      : side(side),
        bits(16 >> format),
        head_dim(head_dim),
        count_shift(1 + format),
        group_shift(format == PageFormat::int2 ? 5 : 6) {}

  constexpr int32_t words() const { return PAGE_TOKENS * head_dim >> count_shift; }
  constexpr int32_t group() const { return 1 << group_shift; }
  constexpr int32_t groups() const { return (head_dim + group() - 1) >> group_shift; }  // of V
  constexpr int32_t scales() const { return is_key(side) ? head_dim : groups() * PAGE_TOKENS; }
  constexpr int64_t scales_offset() const { return int64_t{words()} * 4; }
  constexpr int64_t minima_offset() const { return scales_offset() + scales() * 2; }
  constexpr int64_t bytes() const { return minima_offset() + scales() * 2; }

  constexpr int32_t word_of(int32_t token, int32_t channel) const {
    return is_key(side) ? (channel >> count_shift) * PAGE_TOKENS + token : (token >> count_shift) * head_dim + channel;
  }
  constexpr int32_t shift_of(int32_t token, int32_t channel) const {
    const int32_t value = (is_key(side) ? channel : token) & ((1 << count_shift) - 1);
    return (value >> 1) * bits + (value & 1) * 16;
  }
  constexpr int32_t scale_of(int32_t token, int32_t channel) const {
    return is_key(side) ? channel : (channel >> group_shift) * PAGE_TOKENS + token;
  }
};

constexpr int64_t part_bytes(int32_t side, int32_t format, int32_t head_dim) {
  if (format == PageFormat::fp16) return int64_t{PAGE_TOKENS} * head_dim * 2;
  return (SealedPart(side, format, head_dim).bytes() + PART_ALIGN - 1) & ~int64_t{PART_ALIGN - 1};
}

constexpr int32_t format_of(int32_t word) { return word >> FORMAT_SHIFT; }
constexpr int64_t offset_of(int32_t word) { return int64_t{word & OFFSET_MASK} * OFFSET_UNIT; }

}  // namespace edge
