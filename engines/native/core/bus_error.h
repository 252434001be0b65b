// A file that is cut short, or whose disk fails, while it is mapped: SIGBUS at the next read. Owns: the signal's handler, what
// it says. Needs: nothing. Never: a mapping.
#pragma once
#include <cstdint>
#include <string>

namespace edge {

// While one lives, a SIGBUS at an address in its range ends the process with exit code 1 and its line on standard error. Any
// other SIGBUS goes where it went before. For the lines of at most 64 mappings at once there is room: a read from one beyond
// them ends as the system has it.
class BusErrorLine {
 public:
  BusErrorLine() = default;
  ~BusErrorLine() { forget(); }
  BusErrorLine(const BusErrorLine &) = delete;
  BusErrorLine &operator=(const BusErrorLine &) = delete;

  // `line` without a line end; of a longer one the first 1,000 bytes. Once for each object.
  void watch(const uint8_t *data, int64_t bytes, const std::string &line);
  void forget();

 private:
  int place_ = -1;
};

}  // namespace edge
