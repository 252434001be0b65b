#include "file_map.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "sizes.h"

namespace edge {
namespace {

constexpr int64_t HUGE_PAGE = 2 << 20;

}  // namespace

int FileMap::open(int fd, int64_t bytes, const std::string &loss) {
  // Room for the file behind the next border; what is left over on both sides goes back.
  const int64_t mapped = align_up(bytes, sysconf(_SC_PAGESIZE)), room = mapped + HUGE_PAGE;
  void *start = mmap(nullptr, static_cast<size_t>(room), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return errno;
  const uintptr_t first = reinterpret_cast<uintptr_t>(start);
  const int64_t before = (HUGE_PAGE - static_cast<int64_t>(first % HUGE_PAGE)) % HUGE_PAGE, behind = HUGE_PAGE - before;
  uint8_t *at = static_cast<uint8_t *>(start) + before;
  if (mmap(at, static_cast<size_t>(bytes), PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const int error = errno;
    munmap(start, static_cast<size_t>(room));
    return error;
  }
  if (before) munmap(start, static_cast<size_t>(before));
  if (behind) munmap(at + mapped, static_cast<size_t>(behind));
  data_ = at;
  bytes_ = bytes;
  madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);  // read into the cache in pieces of 2 MiB, where that can be
  line_.watch(data_, bytes_, loss);
  reader_ = std::make_unique<ReadAhead>();
  reader_->start(data_, bytes_);
  return 0;
}

FileMap::~FileMap() {
  reader_.reset();
  line_.forget();
  if (data_) munmap(data_, static_cast<size_t>(bytes_));
}

}  // namespace edge
