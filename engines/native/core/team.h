// A team of threads that enter one function together. Owns: its threads. Needs: nothing. Never: what the work is.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace edge {

// One worker fewer than `threads`: the caller of run() is thread 0. Workers spin for a moment after a run (the next
// decode step is less than a millisecond away), then sleep.
class Team {
 public:
  // Where the system refuses a thread the team is empty: size() is 0 and nothing may be run.
  explicit Team(int threads);
  ~Team();
  Team(const Team &) = delete;
  Team &operator=(const Team &) = delete;

  int size() const { return size_; }
  // Calls body(context, thread) on every thread of the team and returns when all of them have returned.
  void run(void (*body)(void *context, int thread), void *context);
  // Inside run(): returns once every thread of the team has called it.
  void barrier();

 private:
  void work(int thread);
  void stop();

  int size_;
  const int spins_;  // at a barrier; 0 with more threads than processors, where the others must get to run
  std::vector<std::thread> workers_;
  void (*body_)(void *, int) = nullptr;
  void *context_ = nullptr;
  alignas(64) std::atomic<uint32_t> started_{0};   // runs begun; workers wait for it to change
  alignas(64) std::atomic<uint32_t> arrived_{0};   // threads at the barrier
  alignas(64) std::atomic<uint32_t> released_{0};  // barriers passed
  std::atomic<bool> quit_{false};
};

// Hands out [0, count) in chunks to whichever thread asks; one per phase of a step, reset between steps.
struct alignas(64) Counter {
  std::atomic<int32_t> next{0};
  // The next chunk as [*begin, *end); false when nothing is left.
  bool take(int32_t count, int32_t chunk, int32_t *begin, int32_t *end) {
    const int32_t at = next.fetch_add(chunk, std::memory_order_relaxed);
    if (at >= count) return false;
    *begin = at;
    *end = at + chunk < count ? at + chunk : count;
    return true;
  }
};

}  // namespace edge
