// The memory of KV pages: one range of addresses, the pool in front and files behind it. Owns: the mapping. Needs: open files.
// Never: what the bytes mean.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bus_error.h"
#include "read_ahead.h"

namespace edge {

// A file is mapped read-only from its first byte, shared with whoever maps it; nothing is copied. So a page-table word reaches
// the pool and what was baked alike. The pool is zeroed, touched at once, and in pages of 2 MiB where the system has them.
class PoolMap {
 public:
  struct File {
    int fd;  // may be closed after `open`
    int64_t bytes;
    std::string loss;  // the line that the process ends with where the file is cut short
  };
  struct Error {
    int number = 0;  // errno; 0: none
    int file = -1;   // of the files, the one that could not be mapped; -1: memory could not be had
  };

  Error open(int64_t pool_bytes, const std::vector<File> &files);
  PoolMap() = default;
  ~PoolMap();
  PoolMap(const PoolMap &) = delete;
  PoolMap &operator=(const PoolMap &) = delete;

  uint8_t *data() const { return data_; }
  int64_t bytes() const { return bytes_; }                               // to the end of the last file
  const std::vector<int64_t> &file_offsets() const { return offsets_; }  // where each begins

 private:
  uint8_t *data_ = nullptr;
  int64_t bytes_ = 0;
  uint8_t *reserved_ = nullptr;
  int64_t reserved_bytes_ = 0;
  std::vector<int64_t> offsets_;
  std::vector<std::unique_ptr<BusErrorLine>> lines_;
  std::vector<std::unique_ptr<ReadAhead>> readers_;
};

}  // namespace edge
