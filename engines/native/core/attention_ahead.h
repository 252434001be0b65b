// Prefetches beside the arithmetic of few rows. Owns: where the streams of a block stand. Never: reads.
#pragma once
#include <utility>

#include "attention_panels.h"

namespace edge {
namespace {

// What the second-level cache is to have before the next block: the pages of K and V that it will read. A core drops prefetches
// when too many are on their way, so they are asked for a few at a time all through a block, from all pages in turn (7
// operations a line beside them: 19.6 GB/s a core so, 17.6 page by page, 7.3 without).
class Ahead {
 public:
  Ahead(const AttendParams &p, int block, Range next) {
    int shortest = 0, lengths[2 * BLOCK_PAGES];
    for (int page = next.begin / PAGE_TOKENS; page * PAGE_TOKENS < next.end; ++page) {
      for (int side = 0; side < 2; ++side) {
        const Part part = part_of(p, block + 1, page, side);
        const int bytes = int(part_bytes(side, part.format, p.pages.head_dim));
        shortest = count_ == 0 || bytes < shortest ? bytes : shortest;
        last_end_ = bytes > last_end_ ? bytes : last_end_;
        lengths[count_] = bytes;
        parts_[count_++] = part.bytes;
      }
    }
    end_ = shortest;
    if (shortest == last_end_) return;
    // In front those that are longer than the shortest, as far as the longest.
    for (int i = 0; i < count_; ++i) {
      if (lengths[i] != shortest) std::swap(parts_[i], parts_[last_count_++]);
    }
  }
  // Of one page, into the first-level cache.
  void fetch_near(int lines) {
    for (; lines > 0 && near_ < end_; --lines, near_ += LINE) prefetch_near(parts_[0] + near_);
  }
  void fetch(int lines) {
    for (; lines > 0 && at_ < end_; --lines) {
      prefetch(parts_[part_] + at_);
      if (++part_ < count_) continue;
      part_ = 0;
      at_ += LINE;
      if (at_ >= end_) count_ = last_count_, end_ = last_end_;
    }
  }

 private:
  const uint8_t *parts_[2 * BLOCK_PAGES];
  int count_ = 0, part_ = 0, at_ = 0, end_ = 0, near_ = 0;
  int last_count_ = 0, last_end_ = 0;  // of the longer ones, when the shorter ones are all on their way
};

inline const uint8_t *bytes_at(const uint16_t *page) { return reinterpret_cast<const uint8_t *>(page); }

// Pages that follow within the block, for the first-level cache: finding a page's scales is little work a line, and took three
// times as long from the second level.
struct Soon {
  const uint8_t *keys, *values;

  void fetch(int line) const {
    prefetch_near(keys + line * LINE);
    prefetch_near(values + line * LINE);
  }
};

}  // namespace
}  // namespace edge
