#include "team.h"

#include <system_error>

namespace edge {
namespace {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

constexpr int SPINS_AT_BARRIER = 4096;  // then yield: another process may have the processor that we wait for
constexpr int SPINS_FOR_WORK = 16384;   // some 0.3 ms: longer than sampling a token, shorter than a pause in a chat

}  // namespace

Team::Team(int threads)
    : size_(threads < 1 ? 1 : threads),
      spins_(size_ > static_cast<int>(std::thread::hardware_concurrency()) ? 0 : SPINS_AT_BARRIER) {
  try {
    for (int thread = 1; thread < size_; ++thread) workers_.emplace_back(&Team::work, this, thread);
  } catch (const std::system_error &) {
    stop();
    size_ = 0;
  }
}

Team::~Team() { stop(); }

void Team::stop() {
  quit_.store(true, std::memory_order_relaxed);
  started_.fetch_add(1, std::memory_order_release);
  started_.notify_all();
  for (std::thread &worker : workers_) worker.join();
  workers_.clear();
}

void Team::run(void (*body)(void *, int), void *context) {
  body_ = body;
  context_ = context;
  started_.fetch_add(1, std::memory_order_release);
  started_.notify_all();
  body(context, 0);
  barrier();
}

void Team::work(int thread) {
  uint32_t seen = 0;
  while (true) {
    int spins = 0;
    while (started_.load(std::memory_order_acquire) == seen) {
      if (++spins < SPINS_FOR_WORK) {
        relax();
      } else {
        started_.wait(seen, std::memory_order_acquire);
      }
    }
    ++seen;
    if (quit_.load(std::memory_order_relaxed)) return;
    body_(context_, thread);
    barrier();
  }
}

void Team::barrier() {
  if (size_ == 1) return;
  const uint32_t pass = released_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size_)) {
    arrived_.store(0, std::memory_order_relaxed);
    released_.store(pass + 1, std::memory_order_release);
    return;
  }
  int spins = 0;
  while (released_.load(std::memory_order_acquire) == pass) {
    if (++spins < spins_) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace edge
