// The tables of kernels and the choice among them. An instruction set counts as present when the processor and the system
// say so, when a small product survives on it (some virtual machines promise what they then refuse), and when its bits are
// those of the plain loops.
#include "kernels.h"

#include <cstring>

#include "tables.h"

#if defined(__x86_64__)
#include <csetjmp>
#include <csignal>
#endif

namespace edge {
namespace {

constexpr Kernels PLAIN = {"plain",      plain::norm,   plain::matmul, plain::gated, plain::add_norm,
                           plain::embed, plain::rotary, plain::attend, plain::merge, plain::soft_cap};

#if defined(__x86_64__)

constexpr Kernels AVX2 = {"avx2",      avx2::norm,   avx2::matmul, avx2::gated, avx2::add_norm,
                          avx2::embed, avx2::rotary, avx2::attend, avx2::merge, avx2::soft_cap};
constexpr Kernels AVX512VNNI = {"avx512vnni",         avx512vnni::norm,    avx512vnni::matmul, avx512vnni::gated,
                                avx512vnni::add_norm, avx512vnni::embed,   avx512vnni::rotary, avx512vnni::attend,
                                avx512vnni::merge,    avx512vnni::soft_cap};

// Two rows through norm and an int4 product with minima, to y [2][16].
void small_product(const Kernels &kernels, float *y) {
  alignas(64) uint8_t strip[256 + 32 + 32];
  for (int i = 0; i < 256; ++i) strip[i] = static_cast<uint8_t>(i * 37);
  for (int i = 256; i < 320; i += 2) {
    strip[i] = static_cast<uint8_t>(i);
    strip[i + 1] = 0x2c;  // halves near 0.07
  }
  float x[2 * STEP], ones[STEP];
  for (int i = 0; i < 2 * STEP; ++i) x[i] = static_cast<float>((i * 29) % 64 - 30);
  for (float &one : ones) one = 1.0f;
  RowStep steps[2];
  const Rows rows{steps, STEP};
  kernels.norm({x, STEP, ones, STEP, 1e-5f, &rows, nullptr, 0, 0, 2});
  const Weight weight{strip, sizeof strip, 256, 288, WeightKind::int4, STRIP, STEP, 32};
  kernels.matmul({&weight, &rows, nullptr, 0, y, STRIP, 0, 0, 2, 0, 1});
}

thread_local sigjmp_buf *guard = nullptr;
struct sigaction previous_action;

void on_illegal_instruction(int) {
  if (guard) siglongjmp(*guard, 1);
  sigaction(SIGILL, &previous_action, nullptr);  // another thread's own: it faults again, without us
}

bool works(const Kernels &kernels) {
  float expected[2 * STRIP], found[2 * STRIP];
  small_product(PLAIN, expected);
  struct sigaction action = {};
  action.sa_handler = on_illegal_instruction;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGILL, &action, &previous_action)) return false;
  sigjmp_buf buffer;
  volatile bool survived = false;
  if (sigsetjmp(buffer, 1) == 0) {
    guard = &buffer;
    small_product(kernels, found);
    survived = true;
  }
  guard = nullptr;
  sigaction(SIGILL, &previous_action, nullptr);
  return survived && std::memcmp(expected, found, sizeof found) == 0;
}

// Both ask cpuid, and xgetbv for what the system saves of the registers.
bool promises_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool promises_avx512vnni() {
  return promises_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}

#endif

}  // namespace

const Kernels *plain_kernels() { return &PLAIN; }

#if defined(__x86_64__)
const Kernels *avx2_kernels() {
  static const bool here = promises_avx2() && works(AVX2);
  return here ? &AVX2 : nullptr;
}
const Kernels *avx512vnni_kernels() {
  static const bool here = promises_avx512vnni() && works(AVX512VNNI);
  return here ? &AVX512VNNI : nullptr;
}
#else
const Kernels *avx2_kernels() { return nullptr; }
const Kernels *avx512vnni_kernels() { return nullptr; }
#endif

int list_kernels(const Kernels *tables[MAX_TABLES]) {
  const Kernels *const all[MAX_TABLES] = {plain_kernels(), avx2_kernels(), avx512vnni_kernels()};
  int count = 0;
  for (const Kernels *kernels : all) {
    if (kernels) tables[count++] = kernels;
  }
  return count;
}

const Kernels *find_kernels(const char *name) {
  const Kernels *tables[MAX_TABLES];
  const int count = list_kernels(tables);
  if (!*name || !std::strcmp(name, "auto")) return tables[count - 1];
  for (int i = 0; i < count; ++i) {
    if (!std::strcmp(tables[i]->name, name)) return tables[i];
  }
  return nullptr;
}

}  // namespace edge
