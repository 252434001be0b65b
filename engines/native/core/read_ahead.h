// A thread that reads a mapped file into memory. Owns: the thread. Needs: a mapping that outlives it. Never: what bytes mean.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>

namespace edge {

// Without it a load would wait for the disk, or the first step for one page after another.
class ReadAhead {
 public:
  void start(uint8_t *data, int64_t bytes);
  ReadAhead() = default;
  ~ReadAhead();
  ReadAhead(const ReadAhead &) = delete;
  ReadAhead &operator=(const ReadAhead &) = delete;

 private:
  void read(uint8_t *data, int64_t bytes);

  std::thread thread_;
  std::atomic<bool> quit_{false};
};

}  // namespace edge
