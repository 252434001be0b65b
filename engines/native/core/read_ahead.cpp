#include "read_ahead.h"

#include <sys/mman.h>

#include <algorithm>
#include <system_error>

namespace edge {
namespace {

constexpr int64_t PIECE = 2 << 20;  // bytes between two looks at whether it is still wanted
constexpr int POPULATE_READ = 22;   // MADV_POPULATE_READ, Linux 5.14; older headers do not name it

}  // namespace

void ReadAhead::start(uint8_t *data, int64_t bytes) {
  try {
    thread_ = std::thread(&ReadAhead::read, this, data, bytes);
  } catch (const std::system_error &) {
    // Whoever reads first waits for the disk; nothing else.
  }
}

ReadAhead::~ReadAhead() {
  quit_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
}

void ReadAhead::read(uint8_t *data, int64_t bytes) {
  for (int64_t at = 0; at < bytes && !quit_.load(std::memory_order_relaxed); at += PIECE) {
    const size_t count = static_cast<size_t>(std::min(bytes - at, PIECE));
    if (madvise(data + at, count, POPULATE_READ) == 0) continue;
    madvise(data + at, count, MADV_WILLNEED);
  }
}

}  // namespace edge
