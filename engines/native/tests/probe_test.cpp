// The probe over kernels that die, hang or lie: each is absent, this process goes on as before.
#include "probe.h"

#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstring>

#include "expect.h"

namespace edge {
namespace {

Kernels with_matmul(void (*matmul)(const MatmulParams &)) {
  Kernels kernels = *plain_kernels();
  kernels.matmul = matmul;
  return kernels;
}

bool yes() { return true; }
bool no() { return false; }

int asked = 0;
bool count_and_agree() { return ++asked; }

void die(const MatmulParams &) { std::raise(SIGILL); }
void crash(const MatmulParams &) { *static_cast<volatile int *>(nullptr) = 1; }
void hang(const MatmulParams &) {
  volatile bool forever = true;
  while (forever) {
  }
}
void lie(const MatmulParams &p) {
  plain_kernels()->matmul(p);
  p.y[0] += 1.0f;
}

const Kernels GOOD = *plain_kernels(), DYING = with_matmul(die), CRASHING = with_matmul(crash), HANGING = with_matmul(hang),
              LYING = with_matmul(lie);

template <int COUNT>
uint32_t probe_all(const Candidate (&candidates)[COUNT], int limit_ms = PROBE_MS) {
  return probe(*plain_kernels(), candidates, COUNT, limit_ms);
}

int children_seen = 0, illegal_seen = 0;

int run() {
  std::signal(SIGCHLD, [](int) { ++children_seen; });
  std::signal(SIGILL, [](int) { ++illegal_seen; });

  expect(probe_all({{&GOOD, yes, nullptr}, {&GOOD, no, nullptr}, {&GOOD, yes, nullptr}}) == 0b101,
         "what works is not found, or what is not promised is");
  expect(probe_all({{&GOOD, yes, nullptr}, {&LYING, yes, nullptr}, {&GOOD, yes, nullptr}}) == 0b101, "wrong bits pass");
  expect(probe_all({{&GOOD, yes, nullptr}, {&DYING, yes, nullptr}, {&GOOD, yes, nullptr}}) == 0b001,
         "an illegal instruction passes, or what is behind it");
  expect(probe_all({{&GOOD, yes, nullptr}, {&CRASHING, yes, nullptr}}) == 0b001, "a crash passes");

  const auto start = std::chrono::steady_clock::now();
  expect(probe_all({{&GOOD, yes, nullptr}, {&HANGING, yes, nullptr}}, 50) == 0b001, "a hang passes");
  expect(std::chrono::steady_clock::now() - start < std::chrono::seconds(20), "a hang is waited for");

  // In the child, and again here; never for what did not work.
  expect(probe_all({{&GOOD, yes, count_and_agree}, {&LYING, yes, count_and_agree}}) == 0b01 && asked == 1,
         "leave was asked for %d times here", asked);
  expect(probe_all({{&GOOD, yes, no}}) == 0, "what is refused passes");

  expect(illegal_seen == 0, "a child's end reached the signal handler of this process");
#if defined(__x86_64__)  // elsewhere this may run under qemu, whose children end with SIGCHLD
  expect(children_seen == 0, "the host sees %d children", children_seen);
#endif
  expect(waitpid(-1, nullptr, __WALL | WNOHANG) == -1, "a child is left over");
  std::printf("probe: %d failures\n", failures);
  return failures ? 1 : 0;
}

}  // namespace
}  // namespace edge

int main() { return edge::run(); }
