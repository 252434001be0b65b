#include "pool_map.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "sizes.h"

namespace edge {
namespace {

constexpr int64_t HUGE_PAGE = 2 << 20;
constexpr int POPULATE_WRITE = 23;  // MADV_POPULATE_WRITE, Linux 5.14; older headers do not name it

// 0 or the errno of what failed.
int touch(uint8_t *data, int64_t bytes) {
  if (madvise(data, static_cast<size_t>(bytes), POPULATE_WRITE) == 0) return 0;
  if (errno != EINVAL) return errno;
  const int64_t page = sysconf(_SC_PAGESIZE);  // a kernel before 5.14
  for (int64_t at = 0; at < bytes; at += page) *static_cast<volatile uint8_t *>(data + at) = 0;
  return 0;
}

}  // namespace

PoolMap::Error PoolMap::open(int64_t pool_bytes, const std::vector<File> &files) {
  // Each file begins at a border of 2 MiB, so that its pages can be as large (file_map.h).
  int64_t end = pool_bytes;
  std::vector<int64_t> offsets;
  for (const File &file : files) {
    offsets.push_back(align_up(end, HUGE_PAGE));
    end = offsets.back() + file.bytes;
  }
  const int64_t room = align_up(end, HUGE_PAGE) + HUGE_PAGE;
  void *start = mmap(nullptr, static_cast<size_t>(room), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return {errno, -1};
  reserved_ = static_cast<uint8_t *>(start);
  reserved_bytes_ = room;
  uint8_t *at = reserved_ + (HUGE_PAGE - static_cast<int64_t>(reinterpret_cast<uintptr_t>(start) % HUGE_PAGE)) % HUGE_PAGE;
  const int pool_flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (mmap(at, static_cast<size_t>(pool_bytes), PROT_READ | PROT_WRITE, pool_flags, -1, 0) == MAP_FAILED) return {errno, -1};
  madvise(at, static_cast<size_t>(pool_bytes), MADV_HUGEPAGE);  // a kernel without: slower, nothing else
  if (const int error = touch(at, pool_bytes)) return {error, -1};
  for (size_t i = 0; i < files.size(); ++i) {
    uint8_t *place = at + offsets[i];
    const size_t bytes = static_cast<size_t>(files[i].bytes);
    if (mmap(place, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, files[i].fd, 0) == MAP_FAILED)
      return {errno, static_cast<int>(i)};
    madvise(place, bytes, MADV_HUGEPAGE);
    lines_.push_back(std::make_unique<BusErrorLine>());
    lines_.back()->watch(place, files[i].bytes, files[i].loss);
    readers_.push_back(std::make_unique<ReadAhead>());
    readers_.back()->start(place, files[i].bytes);
  }
  data_ = at;
  bytes_ = end;
  offsets_ = std::move(offsets);
  return {};
}

PoolMap::~PoolMap() {
  readers_.clear();
  lines_.clear();
  if (reserved_) munmap(reserved_, static_cast<size_t>(reserved_bytes_));
}

}  // namespace edge
