// Page moves of every instruction set of this machine: equal to the plain loops to the bit, and those within half a step of
// what they were given. Usage: move_test [cases] [seed]
#include <cstdlib>

#include "attention_setup.h"
#include "expect.h"

namespace edge {
namespace {

constexpr uint8_t CANARY = 0xa5;
constexpr int CANARIES = 64;
constexpr int DIMS[] = {8, 16, 24, 40, 64, 72, 80, 96, 128, 192, 256, 264};

// Halves of one part; kinds: as K and V are, with channels of very different sizes, at the ends of fp16, equal ones, zeros of
// both signs, subnormal.
std::vector<uint8_t> random_part(std::mt19937 &random, int count) {
  std::normal_distribution<float> normal;
  const int kind = pick(random, 0, 5);
  const float spread = std::ldexp(1.0f, pick(random, -8, 8));
  std::vector<uint8_t> part(size_t(count) * 2);
  for (int i = 0; i < count; ++i) {
    float x = normal(random) * spread;
    if (kind == 1) x *= std::ldexp(1.0f, i / PAGE_TOKENS % 12 - 6);
    if (kind == 2) x = pick(random, 0, 3) ? x : pick(random, 0, 1) ? 65504.0f : -65504.0f;
    if (kind == 3) x = spread;
    if (kind == 4) x = pick(random, 0, 1) ? 0.0f : -0.0f;
    if (kind == 5) x = float(pick(random, -3, 3)) * 0x1p-24f;
    const uint16_t half = float_to_half(half_range(x));
    std::memcpy(&part[size_t(i) * 2], &half, 2);
  }
  return part;
}

struct Move {
  int side, source_format, target_format, kv_heads, dim;

  std::vector<uint8_t> by(void (*move)(const MoveParams &), const std::vector<uint8_t> &source) const {
    const size_t bytes = size_t(kv_heads * part_bytes(side, target_format, dim));
    std::vector<uint8_t> target(bytes + CANARIES, CANARY);
    move({source.data(), target.data(), side, source_format, target_format, kv_heads, dim});
    for (size_t i = bytes; i < target.size(); ++i) expect(target[i] == CANARY, "a move wrote behind its target");
    target.resize(bytes);
    return target;
  }

  // Every number of the target is within half a step of the source's, and the ends of a range are no further than rounding.
  void check(const std::vector<uint8_t> &source, const std::vector<uint8_t> &target) const {
    const bool cut = side == 0 && source_format == PageFormat::int8 && target_format == PageFormat::int4;
    for (int head = 0; head < kv_heads; ++head) {
      const uint8_t *from = source.data() + head * part_bytes(side, source_format, dim);
      const uint8_t *to = target.data() + head * part_bytes(side, target_format, dim);
      for (int token = 0; token < PAGE_TOKENS; ++token) {
        for (int d = 0; d < dim; ++d) {
          const double x = stored(from, side, source_format, dim, token, d), y = stored(to, side, target_format, dim, token, d);
          double low = x, high = x;  // of all numbers that share the scale
          const int group = side == 0 ? 1 : target_format == PageFormat::int2 ? 32 : 64;
          for (int t = side == 0 ? 0 : token; t < (side == 0 ? PAGE_TOKENS : token + 1); ++t) {
            for (int c = d / group * group; c < std::min(dim, d / group * group + group); ++c) {
              low = std::min(low, stored(from, side, source_format, dim, t, c));
              high = std::max(high, stored(from, side, source_format, dim, t, c));
            }
          }
          const int steps = target_format == PageFormat::int8 ? 255 : target_format == PageFormat::int4 ? 15 : 3;
          const double ends = std::max(std::fabs(low), std::fabs(high)) * 0x1p-10 + (cut ? 0x1p-20 : 0x1p-23);  // fp16 of both
          const double bound = (high - low) / steps * (cut ? 0.75 : 0.5) * (1.0 + 0x1p-10) + ends;
          expect(std::fabs(x - y) <= bound, "side %d, format %d to %d, dim %d: %g became %g, more than %g away", side,
                 source_format, target_format, dim, x, y, bound);
        }
      }
    }
  }
};

void every_instruction_set_moves_as_the_plain_loops(uint32_t seed, const std::vector<AttentionKernels> &sets) {
  std::mt19937 random(seed);
  const int side = pick(random, 0, 1), dim = DIMS[pick(random, 0, int(std::size(DIMS)) - 1)], heads = pick(random, 1, 3);
  std::vector<uint8_t> source = random_part(random, heads * dim * PAGE_TOKENS);
  int format = PageFormat::fp16;
  for (int times = 0; times < 4; ++times) {  // seal, then demote and compact
    Move move{side, format, pick(random, format, PageFormat::int2), heads, dim};
    if (!(MOVE_TARGETS[format] >> move.target_format & 1) || !can_hold(side, move.target_format, dim)) continue;
    const std::vector<uint8_t> target = move.by(plain::move, source);
    if (format == move.target_format) expect(target == source, "seed %u: a compacted page is another one", seed);
    if (format != move.target_format) move.check(source, target);
    for (const AttentionKernels &kernels : sets) {
      expect(move.by(kernels.move, source) == target, "seed %u: side %d, format %d to %d, dim %d by %s", seed, side, format,
             move.target_format, dim, kernels.name);
    }
    source = target;
    format = move.target_format;
  }
}

}  // namespace
}  // namespace edge

int main(int argc, char **argv) {
  const int cases = argc > 1 ? std::atoi(argv[1]) : 200;
  const uint32_t seed = argc > 2 ? uint32_t(std::atoi(argv[2])) : 1;
  const std::vector<edge::AttentionKernels> sets = edge::attention_kernels();
  for (int i = 0; i < cases; ++i) edge::every_instruction_set_moves_as_the_plain_loops(seed + uint32_t(i), sets);
  return edge::summary("moves", cases, seed, sets);
}
