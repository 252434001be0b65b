// Memory of pages with files behind it: one range, its bytes, what fails, and a file that is cut short meanwhile.
#include "pool_map.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "expect.h"
#include "file_map.h"

namespace edge {
namespace {

constexpr int64_t KIB = 1024, BORDER = 2 << 20;

// An open file without a name of so many bytes, each `value`.
int file_of(int64_t bytes, int value) {
  char name[] = "/tmp/pool_map_XXXXXX";
  const int fd = mkstemp(name);
  unlink(name);
  const std::string data(static_cast<size_t>(bytes), static_cast<char>(value));
  expect(write(fd, data.data(), data.size()) == bytes, "no room for a file of %d bytes", static_cast<int>(bytes));
  return fd;
}

void test_bytes() {
  const int first = file_of(3 * KIB, 7), second = file_of(5 << 20, 9);
  PoolMap map;
  const PoolMap::Error error = map.open(100 * KIB + 256, {{first, 3 * KIB, ""}, {second, 5 << 20, ""}});
  expect(error.number == 0, "cannot be mapped: %s", std::strerror(error.number));
  close(first);
  close(second);
  if (error.number) return;
  const std::vector<int64_t> &at = map.file_offsets();
  expect(at.size() == 2 && at[0] == BORDER && at[1] == 2 * BORDER && map.bytes() == at[1] + (5 << 20), "files lie elsewhere");
  expect(reinterpret_cast<uintptr_t>(map.data()) % BORDER == 0, "the pool does not begin at a border");
  bool zero = true;
  for (int64_t i = 0; i < 100 * KIB + 256; ++i) zero = zero && map.data()[i] == 0;
  expect(zero, "the pool is not zeroed");
  std::memset(map.data(), 1, 100 * KIB + 256);
  expect(map.data()[at[0]] == 7 && map.data()[at[0] + 3 * KIB - 1] == 7, "the first file has other bytes");
  expect(map.data()[at[1]] == 9 && map.data()[map.bytes() - 1] == 9, "the second file has other bytes");
}

void test_errors() {
  const int file = file_of(KIB, 1);
  {
    PoolMap map;
    const PoolMap::Error error = map.open(KIB, {{file, KIB, ""}, {-1, KIB, ""}});
    expect(error.number == EBADF && error.file == 1 && !map.data(), "a closed file: %d of file %d", error.number, error.file);
  }
  {
    PoolMap map;
    const PoolMap::Error error = map.open(int64_t{1} << 60, {});  // more than any address space
    expect(error.number == ENOMEM && error.file == -1, "1 EiB: %d of file %d", error.number, error.file);
  }
  close(file);
}

struct Ending {
  int status;
  std::string said;
};

// What a child says on standard error, and how it ends.
template <class Body>
Ending in_child(Body body) {
  int ends[2];
  if (pipe(ends)) return {-1, ""};
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    body();
    _exit(42);
  }
  close(ends[1]);
  std::string said;
  char block[256];
  for (ssize_t count; (count = read(ends[0], block, sizeof block)) > 0;) said.append(block, static_cast<size_t>(count));
  close(ends[0]);
  int status = -1;
  waitpid(child, &status, 0);
  return {status, said};
}

int read_byte(const uint8_t *data) { return *static_cast<const volatile uint8_t *>(data); }

bool exits_with(const Ending &ending, int code) { return WIFEXITED(ending.status) && WEXITSTATUS(ending.status) == code; }

void test_cut_short() {
  Ending ending = in_child([] {
    const int file = file_of(64 * KIB, 3);
    PoolMap map;
    if (map.open(KIB, {{file, 64 * KIB, "manual.pages: cut short"}}).number) _exit(3);
    read_byte(map.data() + map.file_offsets()[0]);
    if (ftruncate(file, 0)) _exit(4);
    read_byte(map.data() + map.bytes() - 1);
  });
  expect(exits_with(ending, 1) && ending.said == "manual.pages: cut short\n", "a prefix: status %x, said %s", ending.status,
         ending.said.c_str());
  ending = in_child([] {
    const int file = file_of(64 * KIB, 3);
    FileMap map;
    if (map.open(file, 64 * KIB, std::string(5000, 'x'))) _exit(3);
    if (ftruncate(file, 0)) _exit(4);
    read_byte(map.data());
  });
  expect(exits_with(ending, 1) && ending.said == std::string(1000, 'x') + "\n", "weights: status %x, %d bytes", ending.status,
         static_cast<int>(ending.said.size()));
}

void test_other_bus_errors() {
  Ending ending = in_child([] {  // as the system has it
    FileMap watched;
    const int file = file_of(64 * KIB, 3), other = file_of(64 * KIB, 3);
    FileMap map;
    if (watched.open(file, 64 * KIB, "the wrong one") || map.open(other, 64 * KIB, "")) _exit(3);
    if (ftruncate(other, 0)) _exit(4);
    read_byte(map.data());
  });
  const bool is_ours = ending.said.find("the wrong one") != std::string::npos;  // an emulator says something of its own
  expect(WIFSIGNALED(ending.status) && WTERMSIG(ending.status) == SIGBUS && !is_ours, "unwatched: status %x, said %s",
         ending.status, ending.said.c_str());
  ending = in_child([] {  // one that was there before keeps what is not ours
    std::signal(SIGBUS, [](int) { _exit(7); });
    FileMap watched;
    if (watched.open(file_of(KIB, 3), KIB, "the wrong one")) _exit(3);
    std::raise(SIGBUS);
  });
  expect(exits_with(ending, 7) && ending.said.empty(), "a handler from before: status %x, said %s", ending.status,
         ending.said.c_str());
  ending = in_child([] {  // more of them than there is room for, and room again behind them
    for (int round = 0; round < 3; ++round) {
      std::vector<BusErrorLine> lines(100);
      for (BusErrorLine &line : lines) line.watch(reinterpret_cast<const uint8_t *>(16), 16, "x");
    }
    const int file = file_of(KIB, 3);
    FileMap map;
    if (map.open(file, KIB, "ours") || ftruncate(file, 0)) _exit(3);
    read_byte(map.data());
  });
  expect(exits_with(ending, 1) && ending.said == "ours\n", "behind many others: status %x, said %s", ending.status,
         ending.said.c_str());
}

int run() {
  test_bytes();
  test_errors();
  test_cut_short();
  test_other_bus_errors();
  std::printf("pool_map: %d failures\n", failures);
  return failures ? 1 : 0;
}

}  // namespace
}  // namespace edge

int main() { return edge::run(); }
