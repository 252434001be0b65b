#include "team_pace.h"

#include <algorithm>

namespace edge {
namespace {

// What a member is worth: a second thread of two brings 30 to 45 % (decode waits for memory), further ones bring less.
constexpr int64_t WORTH_PERCENT = 30;
// Four time slices of the usual scheduler: one that is lost now and then costs less than a member would.
constexpr int64_t MOST_EXCESS_NS = 16'000'000;
constexpr int64_t AFTER_A_TRY_NS = 12'000'000;     // most of the proof is there: the last time it was so
constexpr int64_t SHORTEST_PAUSE_NS = 20'000'000;  // before the next try
constexpr int64_t LONGEST_PAUSE_NS = 640'000'000;  // a try that fails loses some 10 ms

}  // namespace

void TeamPace::note(int64_t now_ns, int64_t busy_ns, int64_t lost_ns) {
  const int64_t lost =
      members_ > 1 ? (lost_ns - lost_before_) / (members_ - 1) : 0;  // all others wait for the one that is late
  lost_before_ = lost_ns;
  excess_ns_ = std::max<int64_t>(0, excess_ns_ + lost - busy_ns * WORTH_PERCENT / 100);
  if (excess_ns_ > MOST_EXCESS_NS) {
    const bool again = now_ns - grown_at_ < 4 * pause_ns_;
    pause_ns_ = again ? std::min(2 * pause_ns_, LONGEST_PAUSE_NS) : SHORTEST_PAUSE_NS;
    retry_at_ = now_ns + pause_ns_;
    members_ -= 1;
    excess_ns_ = 0;
  } else if (members_ < size_ && now_ns >= retry_at_) {
    members_ += 1;
    grown_at_ = now_ns;
    excess_ns_ = AFTER_A_TRY_NS;
  }
}

}  // namespace edge
