// The tables of kernels and the choice among them.
#include "kernels.h"

#include <cstring>

#include "probe.h"
#include "tables.h"

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace edge {
namespace {

constexpr Kernels PLAIN = {
    "plain",       plain::norm,   plain::matmul, plain::gated,       plain::add_norm, plain::embed,       plain::move,
    plain::rotary, plain::attend, plain::merge,  plain::score_pages, plain::rank,     plain::weigh_pages, plain::soft_cap};

// A set that has products of its own and is `set` in all else.
constexpr Kernels with_products(Kernels set, const char *name, decltype(Kernels::matmul) matmul,
                                decltype(Kernels::gated) gated) {
  set.name = name;
  set.matmul = matmul;
  set.gated = gated;
  return set;
}

// What an architecture has beyond the plain loops, slowest first.
#if defined(__x86_64__)

constexpr Kernels AVX2 = {
    "avx2",       avx2::norm,   avx2::matmul, avx2::gated,       avx2::add_norm, avx2::embed,       avx2::move,
    avx2::rotary, avx2::attend, avx2::merge,  avx2::score_pages, avx2::rank,     avx2::weigh_pages, avx2::soft_cap};
constexpr Kernels AVX512VNNI = {"avx512vnni",
                                avx512vnni::norm,
                                avx512vnni::matmul,
                                avx512vnni::gated,
                                avx512vnni::add_norm,
                                avx512vnni::embed,
                                avx512vnni::move,
                                avx512vnni::rotary,
                                avx512vnni::attend,
                                avx512vnni::merge,
                                avx512vnni::score_pages,
                                avx512vnni::rank,
                                avx512vnni::weigh_pages,
                                avx512vnni::soft_cap};
constexpr Kernels AMX = with_products(AVX512VNNI, "amx", amx::matmul, amx::gated);

// All ask cpuid, and xgetbv for what the system saves of the registers.
bool promises_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool promises_avx512vnni() {
  return promises_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}
bool promises_amx() {
  return promises_avx512vnni() && __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8");
}

// Tiles are 8 KiB of registers a thread, which Linux keeps for processes that ask (Documentation/arch/x86/xstate.rst).
bool ask_for_tiles() {
  constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

constexpr Candidate CANDIDATES[] = {
    {&AVX2, promises_avx2, nullptr}, {&AVX512VNNI, promises_avx512vnni, nullptr}, {&AMX, promises_amx, ask_for_tiles}};

#elif defined(__aarch64__)

constexpr Kernels NEON = {
    "neon",       neon::norm,   neon::matmul, neon::gated,       neon::add_norm, neon::embed,       neon::move,
    neon::rotary, neon::attend, neon::merge,  neon::score_pages, neon::rank,     neon::weigh_pages, neon::soft_cap};
constexpr Kernels NEON_DOTPROD = with_products(NEON, "neon-dotprod", neon_dotprod::matmul, neon_dotprod::gated);
constexpr Kernels NEON_I8MM = with_products(NEON, "neon-i8mm", neon_i8mm::matmul, neon_i8mm::gated);

// What the system says of the processor; NEON itself belongs to the architecture.
bool promises_neon() { return true; }
bool promises_dotprod() { return getauxval(AT_HWCAP) & HWCAP_ASIMDDP; }
bool promises_i8mm() { return promises_dotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM); }

constexpr Candidate CANDIDATES[] = {
    {&NEON, promises_neon, nullptr}, {&NEON_DOTPROD, promises_dotprod, nullptr}, {&NEON_I8MM, promises_i8mm, nullptr}};

#endif

struct Here {
  const Kernels *tables[MAX_TABLES] = {&PLAIN};
  int count = 1;
  Here() {
#if defined(__x86_64__) || defined(__aarch64__)
    constexpr int CANDIDATE_COUNT = sizeof CANDIDATES / sizeof *CANDIDATES;
    static_assert(1 + CANDIDATE_COUNT <= MAX_TABLES);
    const uint32_t works = probe(PLAIN, CANDIDATES, CANDIDATE_COUNT, PROBE_MS);
    for (int i = 0; i < CANDIDATE_COUNT; ++i) {
      if (works >> i & 1) tables[count++] = CANDIDATES[i].kernels;
    }
#endif
  }
};

const Here &here() {
  static const Here found;  // one thread probes, others wait
  return found;
}

}  // namespace

const Kernels *plain_kernels() { return &PLAIN; }

int list_kernels(const Kernels *tables[MAX_TABLES]) {
  std::memcpy(tables, here().tables, sizeof here().tables);
  return here().count;
}

const Kernels *find_kernels(const char *name) {
  const Here &found = here();
  if (!*name || !std::strcmp(name, "auto")) return found.tables[found.count - 1];
  for (int i = 0; i < found.count; ++i) {
    if (!std::strcmp(found.tables[i]->name, name)) return found.tables[i];
  }
  return nullptr;
}

}  // namespace edge
