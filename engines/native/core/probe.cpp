#include "probe.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

namespace edge {
namespace {

constexpr int ROWS = 18, WIDTH = 2 * STEP;  // more rows than a tile of AMX has, and some that are left over
constexpr int RESULTS = 2 * ROWS * STRIP;

// Rows through norm, an int4 product of group 32 with minima and an int8 one of group 16 without.
void small_products(const Kernels &kernels, float *y) {
  constexpr int INT4_BYTES = WIDTH * STRIP / 2, INT8_BYTES = WIDTH * STRIP, SECTION = WIDTH / 32 * 32;  // 2 bytes a scale
  alignas(64) uint8_t strip[INT8_BYTES + 2 * SECTION];
  for (int i = 0; i < INT8_BYTES + 2 * SECTION; ++i) strip[i] = static_cast<uint8_t>(i * 37);
  const auto set_halves = [&strip](int begin, int end) {
    for (int i = begin; i < end; i += 2) strip[i + 1] = 0x2c;  // halves near 0.07
  };
  float x[ROWS * WIDTH], ones[WIDTH];
  for (int i = 0; i < ROWS * WIDTH; ++i) x[i] = static_cast<float>((i * 29) % 64 - 30);
  for (float &one : ones) one = 1.0f;
  RowStep steps[ROWS * WIDTH / STEP];
  const Rows rows{steps, WIDTH};
  kernels.norm({x, WIDTH, ones, WIDTH, 1e-5f, &rows, nullptr, 0, 0, ROWS});
  set_halves(INT4_BYTES, INT4_BYTES + 2 * SECTION);
  const Weight int4{strip, sizeof strip, INT4_BYTES, INT4_BYTES + SECTION, WeightKind::int4, STRIP, WIDTH, 32};
  kernels.matmul({&int4, &rows, nullptr, 0, y, STRIP, 0, 0, ROWS, 0, 1});
  set_halves(INT8_BYTES, INT8_BYTES + 2 * SECTION);
  const Weight int8{strip, sizeof strip, INT8_BYTES, 0, WeightKind::int8, STRIP, WIDTH, 16};
  kernels.matmul({&int8, &rows, nullptr, 0, y + ROWS * STRIP, STRIP, 0, 0, ROWS, 0, 1});
}

bool agree(const Kernels &truth, const Kernels &kernels) {
  float expected[RESULTS], found[RESULTS];
  small_products(truth, expected);
  small_products(kernels, found);
  return std::memcmp(expected, found, sizeof found) == 0;
}

// The child: a byte for every candidate that works. It allocates nothing and takes no lock, as other threads of the process
// may have held any when it was copied. No handler of the process sees its end, and no core file is written.
[[noreturn]] void try_all(const Kernels &truth, const Candidate *candidates, int count, int out) {
  prctl(PR_SET_DUMPABLE, 0);
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGTRAP, SIGSYS}) std::signal(signal, SIG_DFL);
  for (uint8_t i = 0; i < count; ++i) {
    if (!candidates[i].is_promised() || (candidates[i].ask && !candidates[i].ask())) continue;
    if (agree(truth, *candidates[i].kernels) && write(out, &i, 1) != 1) break;
  }
  _exit(0);
}

using Clock = std::chrono::steady_clock;

// Reads what the child writes until it ends, and ends it at the limit.
uint32_t watch(int in, pid_t child, int limit_ms) {
  const Clock::time_point limit = Clock::now() + std::chrono::milliseconds(limit_ms);
  uint32_t works = 0;
  const auto read_all = [&works, in] {  // false at the end of the pipe
    uint8_t i;
    ssize_t got;
    while ((got = read(in, &i, 1)) == 1) works |= 1u << i;
    return got < 0 && (errno == EAGAIN || errno == EINTR);
  };
  // Its end shows in the pipe. A process that another thread started meanwhile may hold the pipe open, so it is asked for too.
  while (read_all() && waitpid(child, nullptr, __WALL | WNOHANG) == 0) {
    if (Clock::now() >= limit) {
      kill(child, SIGKILL);
      break;
    }
    pollfd wait{in, POLLIN, 0};
    poll(&wait, 1, 10);
  }
  while (waitpid(child, nullptr, __WALL) < 0 && errno == EINTR) {
  }
  read_all();
  return works;
}

uint32_t believe(const Kernels &truth, const Candidate *candidates, int count) {
  uint32_t works = 0;
  for (int i = 0; i < count; ++i) {
    const Candidate &candidate = candidates[i];
    if (!candidate.ask && candidate.is_promised() && agree(truth, *candidate.kernels)) works |= 1u << i;
  }
  return works;
}

}  // namespace

uint32_t probe(const Kernels &truth, const Candidate *candidates, int count, int limit_ms) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK)) return believe(truth, candidates, count);
  // Not fork(): that runs the handlers of other libraries (OpenBLAS ends its threads), and without an exit signal the host's
  // SIGCHLD handler and its wait() for any child know nothing of this one. qemu's user mode wants the signal.
  long child = syscall(SYS_clone, 0, nullptr, nullptr, nullptr, nullptr);
  if (child < 0 && errno == EINVAL) child = syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (child == 0) try_all(truth, candidates, count, ends[1]);
  close(ends[1]);
  uint32_t works = child > 0 ? watch(ends[0], static_cast<pid_t>(child), limit_ms) : believe(truth, candidates, count);
  close(ends[0]);
  for (int i = 0; i < count; ++i) {
    if ((works >> i & 1) && candidates[i].ask && !candidates[i].ask()) works &= ~(1u << i);
  }
  return works;
}

}  // namespace edge
