// A file in memory, read-only, shared with whoever maps it. Owns: the mapping, a thread that reads it ahead. Needs: nothing.
// Never: what the bytes mean.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>

namespace edge {

// The mapping starts at a border of 2 MiB, so that the system can map it in pages of that size where its cache holds the file
// in such pieces (Linux 6.16 on ext4, XFS and Btrfs): decode reads all weights a token, some 10 % faster so.
class FileMap {
 public:
  // `bytes` of the open file `fd`, which may be closed afterwards. Returns 0 or the errno of what failed.
  int open(int fd, int64_t bytes);
  FileMap() = default;
  ~FileMap();
  FileMap(const FileMap &) = delete;
  FileMap &operator=(const FileMap &) = delete;

  const uint8_t *data() const { return data_; }

 private:
  void read_ahead();

  uint8_t *data_ = nullptr;
  int64_t bytes_ = 0;
  std::thread reader_;
  std::atomic<bool> quit_{false};
};

}  // namespace edge
