#include "dot_rate.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "team.h"

namespace edge {
namespace {

struct Rate {
  const char *isa;
  int kind;        // DotKind
  int operations;  // of one iteration
  void (*run)(int64_t iterations);
  bool (*is_here)();
};

bool always() { return true; }

// --- plain loops, as the compiler makes them for every processor of this architecture ----------------------------------

constexpr int ROW = 4096;

template <class T>
struct Pair {
  alignas(64) T x[ROW], y[ROW];
};

// What the compiler may not look through, so that equal products are not computed once.
template <class T>
inline T *hidden(T *pointer) {
  asm volatile("" : "+r"(pointer)::"memory");
  return pointer;
}

inline int32_t product(const int8_t *x, const int8_t *y, int count) {
  int32_t sum = 0;
  for (int i = 0; i < count; ++i) sum += int32_t(x[i]) * y[i];
  return sum;
}

void plain_int8(int64_t iterations) {
  static const Pair<int8_t> rows{};
  volatile int32_t keep = 0;
  for (int64_t i = 0; i < iterations; ++i) keep = product(hidden(rows.x), hidden(rows.y), ROW);
  (void)keep;
}

void plain_int8_scaled(int64_t iterations) {
  static const Pair<int8_t> rows{};
  volatile float keep = 0.0f;
  for (int64_t i = 0; i < iterations; ++i) {
    const int8_t *x = hidden(rows.x), *y = hidden(rows.y);
    float sum = 0.0f;
    for (int at = 0; at < ROW; at += 32) sum += float(product(x + at, y + at, 32)) * 0.5f + 0.25f;
    keep = sum;
  }
  (void)keep;
}

void plain_fp32(int64_t iterations) {
  static const Pair<float> rows{};
  volatile float keep = 0.0f;
  for (int64_t i = 0; i < iterations; ++i) {
    const float *x = hidden(rows.x), *y = hidden(rows.y);
    float sums[16] = {};
    for (int at = 0; at < ROW; at += 16) {
      for (int lane = 0; lane < 16; ++lane) sums[lane] += x[at + lane] * y[at + lane];
    }
    for (const float sum : sums) keep = sum;
  }
  (void)keep;
}

// --- fast instruction sets: registers only, as many chains as their latency wants --------------------------------------
// In assembly, so that this file needs no flags of an instruction set. `scaled` is one group of 32 inputs a chain: integer
// sums, conversion, scale times the row's scale, and the fused sums of scale and minimum.

#define ON_4(F) F(0) F(1) F(2) F(3)
#define ON_8(F) ON_4(F) F(4) F(5) F(6) F(7)
#define ON_12(F) ON_8(F) F(8) F(9) F(10) F(11)
#define TIMES_7(S) S S S S S S S
#define TIMES_8(S) TIMES_7(S) S

#if defined(__x86_64__)

// Sums begin at zero: what a register held may be a subnormal number, over which some processors take their time.
#define LOOP_FROM(START, NAME, BODY)                                                                                       \
  void NAME(int64_t iterations) {                                                                                          \
    asm volatile("vzeroall\n" START "1:\n" BODY "dec %0\njnz 1b\nvzeroupper\n"                                             \
                 : "+r"(iterations)::"cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", \
                   "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");                                                  \
  }

#define LOOP(NAME, BODY) LOOP_FROM("", NAME, BODY)

#define FMA_Y(i) "vfmadd231ps %%ymm15, %%ymm15, %%ymm" #i "\n"
LOOP(avx2_fp32, ON_12(FMA_Y))

// Sums of two products as int16: those of 32 int4 weights fit, so that one instruction more a group makes int32 of them.
#define PRODUCT_Y(i) "vpmaddubsw %%ymm15, %%ymm15, %%ymm1" #i "\nvpaddw %%ymm1" #i ", %%ymm" #i ", %%ymm" #i "\n"
LOOP(avx2_int8, ON_4(PRODUCT_Y))
#define PAIRS_Y(i) "vpmaddwd %%ymm15, %%ymm15, %%ymm1" #i "\nvpaddd %%ymm1" #i ", %%ymm" #i ", %%ymm" #i "\n"
LOOP(avx2_int16, ON_4(PAIRS_Y))
#define FIRST_Y(i) "vpmaddubsw %%ymm15, %%ymm15, %%ymm" #i "\n"
#define WIDEN_Y(i) "vpmaddwd %%ymm15, %%ymm" #i ", %%ymm" #i "\nvcvtdq2ps %%ymm" #i ", %%ymm" #i "\n"
#define SCALE_Y(i)                                                            \
  "vmulps %%ymm15, %%ymm15, %%ymm1" #i "\nvfmadd231ps %%ymm1" #i ", %%ymm" #i \
  ", %%ymm8\n"                                                                \
  "vfmadd231ps %%ymm15, %%ymm15, %%ymm9\n"
LOOP(avx2_int8_scaled, ON_4(FIRST_Y) TIMES_7(ON_4(PRODUCT_Y)) ON_4(WIDEN_Y) ON_4(SCALE_Y))

#define FMA_Z(i) "vfmadd231ps %%zmm15, %%zmm15, %%zmm" #i "\n"
LOOP(avx512_fp32, ON_12(FMA_Z))
#define BF16_Z(i) "vdpbf16ps %%zmm15, %%zmm15, %%zmm" #i "\n"
LOOP(avx512_bf16, ON_12(BF16_Z))
#define PRODUCT_Z(i) "vpdpbusd %%zmm15, %%zmm15, %%zmm" #i "\n"
LOOP(avx512_int8, ON_12(PRODUCT_Z))
// Totals in zmm16 and up, which no code of the compiler's base uses.
#define CLEAR_Z(i) "vpxor %%xmm" #i ", %%xmm" #i ", %%xmm" #i "\n"
#define WIDEN_Z(i) "vcvtdq2ps %%zmm" #i ", %%zmm" #i "\nvmulps %%zmm15, %%zmm15, %%zmm8\n"
#define SCALE_Z(i) "vfmadd231ps %%zmm8, %%zmm" #i ", %%zmm2" #i "\nvfmadd231ps %%zmm15, %%zmm15, %%zmm2" #i "\n"
#define CLEAR_TOTAL_Z(i) "vpxord %%zmm2" #i ", %%zmm2" #i ", %%zmm2" #i "\n"
LOOP_FROM(ON_8(CLEAR_TOTAL_Z), avx512_int8_scaled, ON_8(CLEAR_Z) TIMES_8(ON_8(PRODUCT_Z)) ON_8(WIDEN_Z) ON_8(SCALE_Z))

#define PAIRS_Z(i) "vpdpwssd %%zmm15, %%zmm15, %%zmm" #i "\n"
LOOP(avx512_int16, ON_12(PAIRS_Z))

// Tiles of 16 x 64 bytes, products of 16 x 16 outputs and 64 inputs.
void amx_int8(int64_t iterations) {
  alignas(64) uint8_t config[64] = {1};  // palette; then bytes of a row at 16, rows at 48
  for (int tile = 0; tile < 8; ++tile) {
    config[16 + 2 * tile] = 64;
    config[48 + tile] = 16;
  }
  asm volatile(
      "ldtilecfg %1\ntilezero %%tmm6\ntilezero %%tmm7\n1:\n"
      "tdpbusd %%tmm7, %%tmm6, %%tmm0\ntdpbusd %%tmm7, %%tmm6, %%tmm1\ntdpbusd %%tmm7, %%tmm6, %%tmm2\n"
      "tdpbusd %%tmm7, %%tmm6, %%tmm3\ndec %0\njnz 1b\ntilerelease\n"
      : "+r"(iterations)
      : "m"(config)
      : "cc");
}

// Whether this process may use tiles, which whoever chose such kernels has asked for: without it the system ends the process.
bool may_use_tiles() {
  constexpr long GET_PERMISSION = 0x1022, TILE_DATA = 1l << 18;  // ARCH_GET_XCOMP_PERM, XFEATURE_XTILEDATA
  uint64_t granted = 0;
  return syscall(SYS_arch_prctl, GET_PERMISSION, &granted) == 0 && (granted & TILE_DATA);
}

bool is_bf16_here() { return __builtin_cpu_supports("avx512bf16"); }

constexpr Rate RATES[] = {
    {"avx2", DotKind::int8, 4 * 64, avx2_int8, always},
    {"avx2", DotKind::int8_scaled, 4 * 8 * 64, avx2_int8_scaled, always},
    {"avx2", DotKind::int16, 4 * 32, avx2_int16, always},
    {"avx2", DotKind::fp32, 12 * 16, avx2_fp32, always},
    {"avx512vnni", DotKind::int8, 12 * 128, avx512_int8, always},
    {"avx512vnni", DotKind::int8_scaled, 8 * 8 * 128, avx512_int8_scaled, always},
    {"avx512vnni", DotKind::int16, 12 * 64, avx512_int16, always},
    {"avx512vnni", DotKind::fp32, 12 * 32, avx512_fp32, always},
    {"avx512vnni", DotKind::bf16, 12 * 64, avx512_bf16, is_bf16_here},
    {"amx", DotKind::int8, 4 * 2 * 16 * 16 * 64, amx_int8, may_use_tiles},
    {"amx", DotKind::int16, 12 * 64, avx512_int16, always},
    {"amx", DotKind::fp32, 12 * 32, avx512_fp32, always},
    {"amx", DotKind::bf16, 12 * 64, avx512_bf16, is_bf16_here},
    {"plain", DotKind::int8, ROW * 2, plain_int8, always},
    {"plain", DotKind::int8_scaled, ROW * 2, plain_int8_scaled, always},
    {"plain", DotKind::fp32, ROW * 2, plain_fp32, always},
};

#elif defined(__aarch64__)

#define LOOP(NAME, BODY)                                                                                                    \
  void NAME(int64_t iterations) {                                                                                           \
    asm volatile("movi v31.16b, #0\n1:\n" BODY "subs %0, %0, #1\nb.ne 1b\n"                                                 \
                 : "+r"(iterations)::"cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", \
                   "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v31");                     \
  }

#define FMA_N(i) "fmla v" #i ".4s, v31.4s, v31.4s\n"
LOOP(neon_fp32, ON_12(FMA_N))
#define PRODUCT_N(i) "smull v16.8h, v31.8b, v31.8b\nsmlal2 v16.8h, v31.16b, v31.16b\nsadalp v" #i ".4s, v16.8h\n"
LOOP(neon_int8, ON_12(PRODUCT_N))
#define PAIRS_N(i) "smlal v" #i ".4s, v31.4h, v31.4h\nsmlal2 v" #i ".4s, v31.8h, v31.8h\n"
LOOP(neon_int16, ON_12(PAIRS_N))
// As numbers, for assemblers that know them only under options: sdot and smmla v<i>.4s, v31.16b, v31.16b.
#define DOT_N(i) ".inst 0x4e9f97e0 + " #i "\n"
LOOP(dotprod_int8, ON_12(DOT_N))
#define MATRIX_N(i) ".inst 0x4e9fa7e0 + " #i "\n"
LOOP(i8mm_int8, ON_12(MATRIX_N))
#define CLEAR_N(i) "movi v" #i ".16b, #0\n"
#define WIDEN_N(i) "scvtf v" #i ".4s, v" #i ".4s\nfmul v17.4s, v31.4s, v31.4s\n"
#define SCALE_N(i) "fmla v1" #i ".4s, v" #i ".4s, v17.4s\nfmla v1" #i ".4s, v31.4s, v31.4s\n"
LOOP(neon_int8_scaled, ON_4(CLEAR_N) TIMES_8(ON_4(PRODUCT_N)) ON_4(WIDEN_N) ON_4(SCALE_N))
LOOP(dotprod_int8_scaled, ON_4(CLEAR_N) TIMES_8(ON_4(DOT_N)) ON_4(WIDEN_N) ON_4(SCALE_N))
LOOP(i8mm_int8_scaled, ON_4(CLEAR_N) ON_4(MATRIX_N) ON_4(MATRIX_N) ON_4(MATRIX_N) ON_4(MATRIX_N) ON_4(WIDEN_N) ON_4(SCALE_N))

constexpr Rate RATES[] = {
    {"neon", DotKind::int8, 12 * 32, neon_int8, always},
    {"neon", DotKind::int8_scaled, 4 * 8 * 32, neon_int8_scaled, always},
    {"neon", DotKind::int16, 12 * 16, neon_int16, always},
    {"neon", DotKind::fp32, 12 * 8, neon_fp32, always},
    {"neon-dotprod", DotKind::int8, 12 * 32, dotprod_int8, always},
    {"neon-dotprod", DotKind::int8_scaled, 4 * 8 * 32, dotprod_int8_scaled, always},
    {"neon-dotprod", DotKind::int16, 12 * 16, neon_int16, always},
    {"neon-dotprod", DotKind::fp32, 12 * 8, neon_fp32, always},
    {"neon-i8mm", DotKind::int8, 12 * 64, i8mm_int8, always},
    {"neon-i8mm", DotKind::int8_scaled, 4 * 4 * 64, i8mm_int8_scaled, always},
    {"neon-i8mm", DotKind::int16, 12 * 16, neon_int16, always},
    {"neon-i8mm", DotKind::fp32, 12 * 8, neon_fp32, always},
    {"plain", DotKind::int8, ROW * 2, plain_int8, always},
    {"plain", DotKind::int8_scaled, ROW * 2, plain_int8_scaled, always},
    {"plain", DotKind::fp32, ROW * 2, plain_fp32, always},
};

#else

constexpr Rate RATES[] = {
    {"plain", DotKind::int8, ROW * 2, plain_int8, always},
    {"plain", DotKind::int8_scaled, ROW * 2, plain_int8_scaled, always},
    {"plain", DotKind::fp32, ROW * 2, plain_fp32, always},
};

#endif

constexpr double ROUND_SECONDS = 3e-3;

struct Job {
  const Rate *rate;
  int64_t iterations;  // of a part
  int parts;
  Counter counter;  // parts go to whoever asks: all are done, however many threads the system lets run
};

void run_parts(void *context, int) {
  Job &job = *static_cast<Job *>(context);
  int32_t part, end;
  while (job.counter.take(job.parts, 1, &part, &end)) job.rate->run(job.iterations);
}

double seconds_of(Team &team, Job &job) {
  job.counter.next.store(0, std::memory_order_relaxed);
  const auto start = std::chrono::steady_clock::now();
  team.run(run_parts, &job);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double dot_rate(const char *isa, int kind, int threads, int rounds) {
  const Rate *rate = nullptr;
  for (const Rate &known : RATES) {
    if (known.kind == kind && !std::strcmp(known.isa, isa) && known.is_here()) rate = &known;
  }
  Team team(threads);
  if (!rate || team.size() == 0) return 0.0;
  Job job{rate, 16, team.size(), {}};
  while (seconds_of(team, job) < ROUND_SECONDS) job.iterations *= 2;
  double best = 1e9;
  for (int round = 0; round < rounds; ++round) best = std::min(best, seconds_of(team, job));
  return double(rate->operations) * double(job.iterations) * team.size() / best;
}

}  // namespace edge
