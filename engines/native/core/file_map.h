// A file in memory, read-only, shared with whoever maps it. Owns: the mapping. Needs: an open file. Never: what the bytes mean.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "bus_error.h"
#include "read_ahead.h"

namespace edge {

// The mapping starts at a border of 2 MiB, so that the system can map it in pages of that size where its cache holds the file
// in such pieces (Linux 6.16 on ext4, XFS and Btrfs): decode reads all weights a token, some 10 % faster so.
class FileMap {
 public:
  // `bytes` of the open file `fd`, which may be closed afterwards. `loss`: the line that the process ends with where the file
  // is cut short meanwhile; "": none of ours. Returns 0 or the errno of what failed.
  int open(int fd, int64_t bytes, const std::string &loss);
  FileMap() = default;
  ~FileMap();
  FileMap(const FileMap &) = delete;
  FileMap &operator=(const FileMap &) = delete;

  const uint8_t *data() const { return data_; }

 private:
  uint8_t *data_ = nullptr;
  int64_t bytes_ = 0;
  BusErrorLine line_;
  std::unique_ptr<ReadAhead> reader_;
};

}  // namespace edge
