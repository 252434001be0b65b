// Threads in step: barriers, sleepers, and how many take part when neighbours take the processors.
#include <algorithm>
#include <chrono>
#include <vector>

#include "expect.h"
#include "team.h"

namespace edge {
namespace {

constexpr int64_t MS = 1'000'000;

struct Rounds {
  Team *team;
  std::vector<int> counts;  // by round: members that have come
  bool was_early = false;
  int nap_every = 0;  // rounds; 0: nobody sleeps
};

void count_rounds(void *context, int thread) {
  Rounds &rounds = *static_cast<Rounds *>(context);
  const int members = rounds.team->members();
  for (size_t round = 0; round < rounds.counts.size(); ++round) {
    std::atomic_ref<int>(rounds.counts[round]).fetch_add(1);
    if (rounds.nap_every && round % rounds.nap_every == 0 && thread == static_cast<int>(round) % members) {
      std::this_thread::sleep_for(std::chrono::microseconds(700));
    }
    rounds.team->barrier();
    if (rounds.counts[round] != members) rounds.was_early = true;
  }
}

void test_a_barrier_waits_for_all(int threads, int count, int nap_every) {
  Team team(threads);
  for (int run = 0; run < 3; ++run) {
    Rounds rounds{&team, std::vector<int>(static_cast<size_t>(count)), false, nap_every};
    team.run(&count_rounds, &rounds);
    expect(!rounds.was_early, "%d threads left a barrier before all had come", threads);
  }
}

// Pieces that a member which comes `late` finds are those that the others left; each is handed out once, its own in order.
void test_every_piece_is_taken_once_the_own_ones_first() {
  for (const int members : {1, 2, 3, 64, 70}) {
    for (const int count : {0, 1, 3, 60, 192, 3072}) {
      Counter counter;
      std::vector<int> takers(static_cast<size_t>(count), -1);
      for (int late = 0; late < 2; ++late) {
        for (int member = members - 1; member >= 0; --member) {
          const Share own = share_of(count, std::min(members, Counter::MOST_SHARES), member % Counter::MOST_SHARES);
          const bool is_late = member % 2 == 0 && members > 1;
          if (is_late != (late == 1) || (late == 0 && own.begin == own.end)) continue;
          int32_t begin, end, share_end;
          // On time a member takes its own pieces alone, as if the others were as fast.
          while (counter.take_piece(count, members, member, &begin, &end, &share_end)) {
            expect(begin < end && end <= share_end && share_end <= count, "piece %d to %d of %d", begin, end, count);
            for (int i = begin; i < end; ++i) {
              expect(takers[static_cast<size_t>(i)] < 0, "%d of %d was handed out twice", i, count);
              takers[static_cast<size_t>(i)] = member;
            }
            if (late == 0 && end == share_end) break;
          }
        }
      }
      for (int i = 0; i < count; ++i) expect(takers[static_cast<size_t>(i)] >= 0, "%d of %d was left", i, count);
      for (int member = 1; member < members && members <= Counter::MOST_SHARES; member += 2) {
        const Share own = share_of(count, members, member);
        for (int i = own.begin; i < own.end; ++i) expect(takers[static_cast<size_t>(i)] == member, "%d was not its own", i);
      }
    }
  }
}

// Notes runs of 4 ms, of which `lost` ms were lost, until `ms` have passed.
void pass_time(TeamPace &pace, int64_t *now, int64_t *lost, int64_t ms, int64_t lost_ms) {
  for (int64_t passed = 0; passed < ms; passed += 4) {
    *now += 4 * MS;
    *lost += lost_ms * MS * (pace.members() - 1);
    pace.note(*now, 4 * MS, *lost);
  }
}

void test_a_team_that_keeps_losing_time_becomes_smaller_and_grows_again() {
  TeamPace pace(2);
  int64_t now = 0, lost = 0;
  pass_time(pace, &now, &lost, 400, 0);
  expect(pace.members() == 2, "undisturbed: %d", pace.members());
  pass_time(pace, &now, &lost, 4, 4);
  pass_time(pace, &now, &lost, 40, 0);
  expect(pace.members() == 2, "one slice lost: %d", pace.members());
  pass_time(pace, &now, &lost, 60, 2);
  const int64_t slow = now;
  int64_t alone = 0;
  for (int64_t step = 0; step < 1000; ++step) {
    pass_time(pace, &now, &lost, 4, 2);
    alone += pace.members() == 1 ? 4 * MS : 0;
  }
  expect(alone * 10 > (now - slow) * 9, "alone for %f of the time",
         static_cast<double>(alone) / static_cast<double>(now - slow));
  pass_time(pace, &now, &lost, 800, 0);
  expect(pace.members() == 2, "the neighbour has gone: %d", pace.members());
}

void test_a_team_of_one_stays_one() {
  TeamPace pace(1);
  for (int64_t now = 0; now < 1000 * MS; now += 4 * MS) pace.note(now, 4 * MS, now);
  expect(pace.members() == 1, "of one: %d", pace.members());
}

}  // namespace
}  // namespace edge

int main() {
  using namespace edge;
  for (const int threads : {1, 2, 3, 8}) {
    test_a_barrier_waits_for_all(threads, 2000, 0);
    test_a_barrier_waits_for_all(threads, 40, 4);
  }
  test_every_piece_is_taken_once_the_own_ones_first();
  test_a_team_that_keeps_losing_time_becomes_smaller_and_grows_again();
  test_a_team_of_one_stays_one();
  std::printf("%d failures\n", failures);
  return failures ? 1 : 0;
}
