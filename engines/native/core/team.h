// A team of threads that enter one function together. Owns: its threads, how many of them take part. Needs: team_pace.h. Never:
// what the work is.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "team_pace.h"

namespace edge {

// One worker fewer than `threads`: the caller of run() is thread 0. Who waits spins for a moment, then sleeps, so that a thread
// of ours which lost its processor to a neighbour finds another. Runs that lose much of their time that way have fewer members
// (team_pace.h).
class Team {
 public:
  // Where the system refuses a thread the team is empty: size() is 0 and nothing may be run.
  explicit Team(int threads);
  ~Team();
  Team(const Team &) = delete;
  Team &operator=(const Team &) = delete;

  int size() const { return size_; }
  // Threads of the next run, or of the one under way: 0 .. members() - 1.
  int members() const { return pace_.members(); }
  // Calls body(context, thread) on every member and returns when all of them have returned.
  void run(void (*body)(void *context, int thread), void *context);
  // Inside run(): returns once every member has called it.
  void barrier() {
    // Both are read before this thread arrives: behind that the run may end, and the next have fewer members.
    const int32_t all = members();
    const uint32_t pass = released_.load(std::memory_order_relaxed);
    if (all == 1) return;
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < all) return wait_for_others(pass);
    arrived_.store(0, std::memory_order_relaxed);
    released_.store(pass + 1, std::memory_order_release);
    released_.notify_all();
  }

 private:
  // What a worker waits for; a cache line each, for every run changes those of its members.
  struct alignas(64) Seat {
    std::atomic<uint32_t> runs{0};  // that the worker was called to
  };
  void work(int thread);
  void stop();
  void wait_for_others(uint32_t pass);

  int size_;
  const bool may_spin_;  // not with more threads than processors, where the others must get to run
  std::vector<std::thread> workers_;
  std::unique_ptr<Seat[]> seats_;  // by thread
  void (*body_)(void *, int) = nullptr;
  void *context_ = nullptr;
  TeamPace pace_;
  std::atomic<bool> quit_{false};
  std::atomic<int64_t> lost_ns_{0};                // since the team began, by all who waited long
  alignas(64) std::atomic<int32_t> arrived_{0};    // members at the barrier
  alignas(64) std::atomic<uint32_t> released_{0};  // barriers passed
};

// An even share of [0, count).
struct Share {
  int32_t begin, end;
};
inline Share share_of(int32_t count, int32_t shares, int32_t index) {
  return {static_cast<int32_t>(static_cast<int64_t>(count) * index / shares),
          static_cast<int32_t>(static_cast<int64_t>(count) * (index + 1) / shares)};
}

// Hands out [0, count) in chunks to whichever thread asks; one per phase of a step, reset between steps.
struct alignas(64) Counter {
  std::atomic<int32_t> next{0};
  std::atomic<uint64_t> taken{0};  // bit i: piece i

  void reset() {
    next.store(0, std::memory_order_relaxed);
    taken.store(0, std::memory_order_relaxed);
  }
  // The next chunk as [*begin, *end); false when nothing is left.
  bool take(int32_t count, int32_t chunk, int32_t *begin, int32_t *end) {
    const int32_t at = next.fetch_add(chunk, std::memory_order_relaxed);
    if (at >= count) return false;
    *begin = at;
    *end = at + chunk < count ? at + chunk : count;
    return true;
  }
  // A piece of [0, count), of which every one of `members` has an even share in up to four pieces, and one behind another: the
  // thread's own, known beforehand, then what is left of the shares of those that are late. *share_end: where the thread goes
  // on reading if nobody takes it away. With more than MOST_SHARES members the others get nothing.
  static constexpr int32_t MOST_SHARES = 64;
  bool take_piece(int32_t count, int32_t members, int32_t thread, int32_t *begin, int32_t *end, int32_t *share_end) {
    const int32_t shares = members < MOST_SHARES ? members : MOST_SHARES,
                  pieces = MOST_SHARES / shares < 4 ? MOST_SHARES / shares : 4;
    for (int32_t i = 0; i < shares; ++i) {
      const int32_t index = (thread + i) % shares;
      for (int32_t j = 0; j < pieces; ++j) {
        const int32_t piece = index * pieces + (i == 0 ? j : pieces - 1 - j);
        const Share found = share_of(count, shares * pieces, piece);
        const uint64_t bit = uint64_t(1) << piece;
        if (found.begin == found.end || taken.load(std::memory_order_relaxed) & bit) continue;
        if (taken.fetch_or(bit, std::memory_order_relaxed) & bit) continue;
        *begin = found.begin;
        *end = found.end;
        *share_end = i == 0 ? share_of(count, shares, index).end : found.end;
        return true;
      }
    }
    return false;
  }
};

}  // namespace edge
