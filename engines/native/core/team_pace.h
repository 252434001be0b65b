// How many threads of a team take part. Owns: the rule. Needs: nothing. Never: threads, a clock; who counts brings the time.
#pragma once
#include <cstdint>

namespace edge {

// Threads that work in step are as slow as the one whose processor a neighbour uses: it comes back after some 4 ms, in which
// one thread alone would have had a token ready. So a team that keeps losing much of its time goes on with one member fewer,
// and tries again with one more, the later the more often that failed.
class TeamPace {
 public:
  explicit TeamPace(int size) : size_(size), members_(size) {}
  int members() const { return members_; }
  // A run has ended at `now_ns` and took `busy_ns`; waiting members have lost `lost_ns` since the team began, added up.
  void note(int64_t now_ns, int64_t busy_ns, int64_t lost_ns);

 private:
  const int size_;
  int members_;
  int64_t lost_before_ = 0;  // at the last note
  int64_t excess_ns_ = 0;    // lost beyond what a member is worth; at least 0
  int64_t grown_at_ = 0, retry_at_ = 0, pause_ns_ = 0;
};

}  // namespace edge
