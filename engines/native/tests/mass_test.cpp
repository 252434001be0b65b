// What rows give to pages, of every instruction set of this machine: equal to the plain loops to the bit on random shapes,
// formats, windows and cuts, and the plain loops close to a softmax in double. Usage: mass_test [cases] [seed]
#include <cstdlib>

#include "attention_setup.h"
#include "expect.h"

namespace edge {
namespace {

constexpr int64_t CANARY = 12345;

// One sequence whose older pages are sealed, all in one format of K or each in its own, and whose last rows are watched.
struct Case {
  Setup setup;
  int layer, watched, pages;
  int64_t stride;
  std::vector<uint8_t> pool;
  std::vector<float> qkv;

  Case(const Shape &shape, int length, int watched, uint32_t seed)
      : setup(shape, {length}, seed),
        layer(int(seed) % shape.layers),
        watched(std::min(watched, length)),
        pages((length + PAGE_TOKENS - 1) / PAGE_TOKENS),
        stride((pages + 15) / 16 * 16),
        pool(setup.pool_bytes, 0xff),
        qkv(setup.x) {
    plain::rotary(setup.rotary(pool, qkv, layer));
    const bool alike = pick(setup.random, 0, 1);
    const int format = pick(setup.random, 0, 2);
    for (int page = 0; page < pages - 1; ++page) {
      const int key = alike ? format : pick(setup.random, 0, 2);
      if (key && can_hold(0, key, shape.head_dim)) setup.seal(plain::move, pool, layer, 0, page, 0, key);
    }
    setup.free_behind_window(pool, layer, 0, length - this->watched);
  }

  // The rows [begin, end) of those watched.
  void weigh(void (*weigh_pages)(const MassParams &), int kv_head, int begin, int end, std::vector<int64_t> &mass) {
    std::vector<float> scratch(attend_scratch_floats(setup.shape.head_dim)), powers(2 * MASS_ROWS * stride), out;
    const int first = setup.tokens - watched;
    MassParams p{};
    p.rows = setup.attend(pool, qkv, out, scratch.data(), layer, 0, kv_head, first + begin, first + end);
    p.powers = powers.data();
    p.stride = stride;
    p.mass = mass.data();
    weigh_pages(p);
  }

  // Mean share of the rows of a kv head on each page, in double.
  std::vector<double> softmax(int kv_head) {
    const Shape &shape = setup.shape;
    const int group = shape.group();
    std::vector<double> shares(size_t(pages), 0.0);
    for (int row = setup.tokens - watched; row < setup.tokens; ++row) {
      for (int head = 0; head < group; ++head) {
        const float *query = qkv.data() + row * shape.width() + int64_t(kv_head * group + head) * shape.head_dim;
        const int oldest = shape.window && row >= shape.window ? row - shape.window + 1 : 0;
        std::vector<double> scores(size_t(row + 1), 0.0);
        double most = -1e300, total = 0.0;
        for (int j = oldest; j <= row; ++j) {
          const Part part = part_of(setup.pages(pool, layer), 0, j / PAGE_TOKENS, 0, kv_head);
          for (int d = 0; d < shape.head_dim; ++d) {
            scores[j] += query[d] * stored(part.bytes, 0, part.format, shape.head_dim, j % PAGE_TOKENS, d);
          }
          if (shape.soft_cap > 0.0f) scores[j] = shape.soft_cap * std::tanh(scores[j] / shape.soft_cap);
          most = std::max(most, scores[j]);
        }
        for (int j = oldest; j <= row; ++j) total += std::exp(scores[j] - most);
        for (int j = oldest; j <= row; ++j) shares[j / PAGE_TOKENS] += std::exp(scores[j] - most) / total / (watched * group);
      }
    }
    return shares;
  }
};

Case random_case(uint32_t seed) {
  std::mt19937 random(seed);
  const int dims[] = {64, 64, 128, 256, 80, 96, 112, 16, 192, 8, 40, 264}, windows[] = {0, 0, 20, 100, 512};
  Shape shape{};
  shape.kv_heads = pick(random, 1, 2);
  shape.heads = shape.kv_heads * pick(random, 1, 9);
  shape.head_dim = dims[pick(random, 0, 11)];
  shape.window = windows[pick(random, 0, 4)];
  shape.soft_cap = pick(random, 0, 2) ? 0.0f : 5.0f;
  shape.normed = pick(random, 0, 1);
  shape.layers = pick(random, 1, 2);
  return Case(shape, pick(random, 1, 900), pick(random, 1, WATCH_ROWS), seed);
}

// Scores of some hundreds, as norms of 2 make them, tell fp32 from double by 1e-5 of themselves: 2e-3 of a share.
void the_plain_loops_give_the_shares_of_a_softmax(uint32_t seed) {
  Case c = random_case(seed);
  const int rows = c.watched * c.setup.shape.group();
  std::vector<int64_t> mass(c.pages + 1, 0);
  mass.back() = CANARY;
  c.weigh(plain::weigh_pages, 0, 0, c.watched, mass);
  expect(mass.back() == CANARY, "seed %u: written behind the pages", seed);
  const std::vector<double> shares = c.softmax(0);
  int64_t all = 0;
  for (int page = 0; page < c.pages; ++page) {
    all += mass[page];
    const double found = double(mass[page]) / MASS_STEPS / rows;
    expect(std::fabs(found - shares[page]) <= 2e-3, "seed %u: page %d has %g, softmax says %g", seed, page, found,
           shares[page]);
  }
  expect(std::fabs(double(all) / MASS_STEPS / rows - 1.0) <= 1e-4, "seed %u: shares sum to %g", seed,
         double(all) / MASS_STEPS / rows);
}

void every_cut_and_instruction_set_gives_the_plain_loops_mass(uint32_t seed, const std::vector<AttentionKernels> &sets) {
  Case c = random_case(seed);
  for (int kv_head = 0; kv_head < c.setup.shape.kv_heads; ++kv_head) {
    std::vector<int64_t> truth(c.pages, 0);
    c.weigh(plain::weigh_pages, kv_head, 0, c.watched, truth);
    for (const AttentionKernels &kernels : sets) {
      std::vector<int64_t> mass(c.pages, 0);
      for (int begin = 0, end; begin < c.watched; begin = end) {
        end = pick(c.setup.random, begin + 1, c.watched);
        c.weigh(kernels.weigh_pages, kv_head, begin, end, mass);
      }
      expect(mass == truth, "seed %u: mass of %s", seed, kernels.name);
    }
  }
}

void rows_that_are_not_finite_give_nothing(const std::vector<AttentionKernels> &sets) {
  Case c(Shape{2, 1, 64, 0, 0.0f, false, 1}, 200, 3, 1);
  for (size_t i = c.qkv.size() - c.setup.shape.width(); i < c.qkv.size(); ++i) c.qkv[i] = __builtin_nanf("");
  for (const AttentionKernels &kernels : sets) {
    std::vector<int64_t> mass(c.pages, 0);
    c.weigh(kernels.weigh_pages, 0, 2, 3, mass);
    for (const int64_t each : mass) expect(each >= 0 && each <= 2 * MASS_STEPS, "%s: mass %lld", kernels.name, (long long)each);
  }
}

}  // namespace
}  // namespace edge

int main(int argc, char **argv) {
  const int cases = argc > 1 ? std::atoi(argv[1]) : 40;
  const uint32_t seed = argc > 2 ? uint32_t(std::atoi(argv[2])) : 1;
  const std::vector<edge::AttentionKernels> sets = edge::attention_kernels();
  for (int i = 0; i < cases; ++i) {
    edge::the_plain_loops_give_the_shares_of_a_softmax(seed + uint32_t(i));
    edge::every_cut_and_instruction_set_gives_the_plain_loops_mass(seed + uint32_t(i), sets);
  }
  edge::rows_that_are_not_finite_give_nothing(sets);
  return edge::summary("mass", cases, seed, sets);
}
