#include "team.h"

#include <sched.h>

#include <chrono>
#include <system_error>

namespace edge {
namespace {

constexpr int64_t LONG_WAIT_NS = 300'000;  // at a barrier: far more than members are apart when nobody disturbs them
constexpr int64_t PAUSE_NS = 500'000;      // between two runs: a decode loop is back before, a chat that waits is not
constexpr int LOADS_A_LOOK = 32;           // between two looks at the clock, which costs some 25 ns

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Those that this process may use: cpusets and taskset included.
int usable_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// Whether `word` stopped being `seen` within so many nanoseconds.
bool spin_while(const std::atomic<uint32_t> &word, uint32_t seen, int64_t ns) {
  const auto changed = [&] {
    for (int i = 0; i < LOADS_A_LOOK; ++i) {
      if (word.load(std::memory_order_acquire) != seen) return true;
      relax();
    }
    return false;
  };
  if (changed()) return true;
  for (const int64_t start = now_ns(); now_ns() - start < ns;) {
    if (changed()) return true;
  }
  return false;
}

}  // namespace

Team::Team(int threads)
    : size_(threads < 1 ? 1 : threads),
      may_spin_(size_ <= usable_processors()),
      seats_(new Seat[static_cast<size_t>(size_)]),
      pace_(size_) {
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
  for (size_t worker = 1; worker <= workers_.size(); ++worker) {
    seats_[worker].runs.fetch_add(1, std::memory_order_release);
    seats_[worker].runs.notify_one();
  }
  for (std::thread &worker : workers_) worker.join();
  workers_.clear();
}

void Team::run(void (*body)(void *, int), void *context) {
  body_ = body;
  context_ = context;
  const int64_t start = now_ns();
  for (int thread = 1; thread < members(); ++thread) {
    seats_[thread].runs.fetch_add(1, std::memory_order_release);
    seats_[thread].runs.notify_one();
  }
  body(context, 0);
  barrier();
  pace_.note(now_ns(), now_ns() - start, lost_ns_.load(std::memory_order_relaxed));
}

void Team::work(int thread) {
  std::atomic<uint32_t> &runs = seats_[thread].runs;
  uint32_t seen = 0;
  while (true) {
    if (!may_spin_ || !spin_while(runs, seen, PAUSE_NS)) runs.wait(seen, std::memory_order_acquire);
    ++seen;
    if (quit_.load(std::memory_order_relaxed)) return;
    body_(context_, thread);
    barrier();
  }
}

void Team::wait_for_others(uint32_t pass) {
  if (may_spin_ && spin_while(released_, pass, LONG_WAIT_NS)) return;
  const int64_t start = now_ns() - LONG_WAIT_NS;
  released_.wait(pass, std::memory_order_acquire);
  if (may_spin_) lost_ns_.fetch_add(now_ns() - start, std::memory_order_relaxed);
}

}  // namespace edge
