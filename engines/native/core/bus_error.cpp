#include "bus_error.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>

namespace edge {
namespace {

constexpr int MAX_LINES = 64;
constexpr size_t MAX_BYTES = 1000;

// The handler reads `begin` first: what stands beside it was written before.
struct Watched {
  std::atomic<uintptr_t> begin{0};  // 0: free
  std::atomic<uintptr_t> end{0};
  char line[MAX_BYTES + 1];
  size_t bytes;
};

Watched watched[MAX_LINES];
std::mutex changing;
struct sigaction before;

// Only what a signal handler may call.
void on_bus_error(int number, siginfo_t *info, void *context) {
  // What a process sent has no address, and no read that is tried again.
  const bool is_sent = info->si_code <= 0;
  const uintptr_t at = is_sent ? 0 : reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Watched &one : watched) {
    const uintptr_t begin = one.begin.load(std::memory_order_acquire);
    if (!begin || at < begin || at >= one.end.load(std::memory_order_relaxed)) continue;
    if (write(STDERR_FILENO, one.line, one.bytes) < 0) _exit(1);
    _exit(1);
  }
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  } else {
    sigaction(number, &before, nullptr);  // the read that failed is tried again, and ends as it would have
    if (is_sent) raise(number);
  }
}

// Whether ours is the handler, or could be made it. Whoever has set another one since is left in front and has it back.
bool install() {
  static const bool installed = [] {
    struct sigaction ours = {};
    ours.sa_sigaction = on_bus_error;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    return sigaction(SIGBUS, &ours, &before) == 0;
  }();
  return installed;
}

}  // namespace

void BusErrorLine::watch(const uint8_t *data, int64_t bytes, const std::string &line) {
  const std::lock_guard<std::mutex> lock(changing);
  if (place_ >= 0 || bytes <= 0 || line.empty() || !install()) return;
  for (int i = 0; i < MAX_LINES; ++i) {
    Watched &one = watched[i];
    if (one.begin.load(std::memory_order_relaxed)) continue;
    one.bytes = std::min(line.size(), MAX_BYTES);
    std::memcpy(one.line, line.data(), one.bytes);
    one.line[one.bytes++] = '\n';
    one.end.store(reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes), std::memory_order_relaxed);
    one.begin.store(reinterpret_cast<uintptr_t>(data), std::memory_order_release);
    place_ = i;
    return;
  }
}

void BusErrorLine::forget() {
  if (place_ < 0) return;
  const std::lock_guard<std::mutex> lock(changing);
  watched[place_].begin.store(0, std::memory_order_release);
  place_ = -1;
}

}  // namespace edge
