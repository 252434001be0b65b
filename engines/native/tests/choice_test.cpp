// Scores and ranks of pages of every instruction set of this machine: equal to the plain loops to the bit on random shapes, and
// the plain loops close to their formulas in double. The choice by rank, and the mass that it leaves out.
// Usage: choice_test [cases] [seed]
#include <cstdlib>

#include "attention_setup.h"
#include "expect.h"
#include "page_choice.h"

namespace edge {
namespace {

constexpr float CANARY = 12345.0f;

// One sequence, whose pages but the last are sealed, all in one format of K or each in its own.
struct Case {
  Setup setup;
  int layer, pages;
  int64_t stride;
  std::vector<uint8_t> pool;
  std::vector<float> qkv;

  Case(const Shape &shape, int length, uint32_t seed)
      : setup(shape, {length}, seed),
        layer(int(seed) % shape.layers),
        pages((length + PAGE_TOKENS - 1) / PAGE_TOKENS),
        stride((pages + 15) / 16 * 16),
        pool(setup.pool_bytes, 0xff),
        qkv(setup.x) {
    plain::rotary(setup.rotary(pool, qkv, layer));
    const bool alike = pick(setup.random, 0, 1);
    const int format = pick(setup.random, 1, 2);
    for (int page = 0; page < pages - 1; ++page) {
      const int key = alike ? format : pick(setup.random, 0, 2), value = pick(setup.random, 0, 2);
      if (key && can_hold(0, key, shape.head_dim)) setup.seal(plain::move, pool, layer, 0, page, 0, key);
      if (value && can_hold(1, value, shape.head_dim)) setup.seal(plain::move, pool, layer, 0, page, 1, value);
    }
  }
  const float *query(int kv_head) const {
    return qkv.data() + (setup.tokens - 1) * setup.shape.width() +
           int64_t(kv_head) * setup.shape.group() * setup.shape.head_dim;
  }
  PageScoreParams scoring(std::vector<float> &scores, int kv_head, int begin, int end) {
    return {setup.pages(pool, layer), query(kv_head), setup.shape.group(), 0, kv_head, begin, end, scores.data(), stride};
  }
  Part keys(int page, int kv_head) { return part_of(setup.pages(pool, layer), 0, page, 0, kv_head); }
  Kept kept_key(int page, int kv_head, int token, int channel) {
    const Part part = keys(page, kv_head);
    return kept_at(part.bytes, 0, part.format, setup.shape.head_dim, token, channel);
  }
};

Case random_case(uint32_t seed) {
  std::mt19937 random(seed);
  const int dims[] = {64, 64, 128, 256, 80, 96, 112, 16, 192, 8, 40, 264};
  Shape shape{};
  shape.kv_heads = pick(random, 1, 3);
  shape.heads = shape.kv_heads * pick(random, 1, 9);
  shape.head_dim = dims[pick(random, 0, 11)];
  shape.soft_cap = pick(random, 0, 2) ? 0.0f : 5.0f;
  shape.normed = pick(random, 0, 1);
  shape.layers = pick(random, 1, 3);
  return Case(shape, pick(random, 1, 1500), seed);
}

// The middle of what q.k can be on a page and REACH of the way to its most, by channel, in double.
void expect_score(Case &c, const float *query, int page, int kv_head, float score) {
  const int dim = c.setup.shape.head_dim;
  const Part part = c.keys(page, kv_head);
  const SealedPart layout(0, part.format, dim);
  double middle = 0.0, half = 0.0, size = 0.0;
  for (int d = 0; d < dim; ++d) {
    uint16_t scale, minimum;
    std::memcpy(&scale, part.bytes + layout.scales_offset() + 2 * d, 2);
    std::memcpy(&minimum, part.bytes + layout.minima_offset() + 2 * d, 2);
    const double low = half_to_float(minimum), high = low + half_to_float(scale) * ((1 << layout.bits) - 1);
    middle += query[d] * (low + high) / 2;
    half += std::fabs(query[d]) * (high - low) / 2;
    size += std::fabs(query[d]) * std::max(std::fabs(low), std::fabs(high));
  }
  expect(std::fabs(middle + REACH * half - double(score)) <= 1e-5 * size, "a page's score is %g, the formula says %g",
         double(score), middle + REACH * half);
}

void expect_ranks(const Case &c, const std::vector<float> &scores, const std::vector<float> &ranks) {
  std::vector<double> expected(size_t(c.pages), 0.0);
  const float cap = c.setup.shape.soft_cap;
  for (int head = 0; head < c.setup.shape.group(); ++head) {
    double total = 0.0, most = -1e300;
    std::vector<double> powers(size_t(c.pages), 0.0);
    const auto score = [&](int page) {
      const double bound = scores[head * c.stride + page];
      return cap > 0.0f && std::isfinite(bound) ? cap * std::tanh(bound / cap) : bound;
    };
    for (int page = 1; page < c.pages; ++page) most = std::max(most, score(page));
    for (int page = 1; page < c.pages; ++page) total += powers[page] = std::exp(score(page) - most);
    for (int page = 1; page < c.pages && total > 0.0; ++page) expected[page] += powers[page] / total;
  }
  for (int page = 1; page < c.pages; ++page) {
    if (!std::isfinite(scores[page])) continue;
    expect(std::fabs(ranks[page] - expected[page]) <= 1e-4, "a page's rank is %g, the formula says %g", double(ranks[page]),
           expected[page]);
  }
}

// As many as asked for, those of the highest ranks, and all that are always read, in order.
void expect_choice(Case &c, const std::vector<float> &ranks) {
  const int32_t *table = c.setup.page_table.data();
  const int32_t optional = count_optional(table, c.pages);
  if (optional == 0) return;
  const int32_t read = pick(c.setup.random, 1, optional);
  std::vector<uint64_t> keys(c.pages);
  std::vector<int32_t> words(c.pages * 2 + 1, -7);
  choose_pages(table, c.pages, read, ranks.data(), keys.data(), words.data());
  int32_t at = 0, taken = 0;
  float least = __builtin_inff(), most_left = -1.0f;
  for (int32_t page = 0; page < c.pages; ++page) {
    const bool optional = page > 0 && format_of(table[page * 2]) != PageFormat::fp16;
    const bool chosen = words[at * 2] == table[page * 2] && words[at * 2 + 1] == table[page * 2 + 1];
    expect(optional || chosen, "page %d is not read", page);
    if (optional) (chosen ? least : most_left) = chosen ? std::min(least, ranks[page]) : std::max(most_left, ranks[page]);
    taken += optional && chosen;
    at += chosen;
  }
  expect(taken == read && at == c.pages - optional + read, "%d pages were chosen, not %d", taken, read);
  expect(least >= most_left, "a page of rank %g was chosen before one of %g", double(least), double(most_left));
  expect(words[at * 2] == -7, "a choice wrote behind its words");
}

void every_instruction_set_scores_and_ranks_as_the_plain_loops(uint32_t seed, const std::vector<AttentionKernels> &sets) {
  Case c = random_case(seed);
  const Shape &shape = c.setup.shape;
  const size_t size = size_t(shape.group()) * c.stride;
  for (int kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
    std::vector<float> truth(size + 1, CANARY), shares(c.stride + 1, CANARY);
    plain::score_pages(c.scoring(truth, kv_head, 0, c.pages));
    for (int head = 0; head < shape.group(); ++head) {
      for (int page = 0; page < c.pages; ++page) {
        const float found = truth[head * c.stride + page];
        if (c.keys(page, kv_head).format == PageFormat::fp16) {
          expect(found == NO_MAXIMUM, "an fp16 page has the score %g", double(found));
        } else if (pick(c.setup.random, 0, 7) == 0) {
          expect_score(c, c.query(kv_head) + head * shape.head_dim, page, kv_head, found);
        }
      }
    }
    std::vector<float> scratch = truth;
    plain::rank({scratch.data(), c.stride, shape.group(), c.pages, shape.soft_cap, shares.data()});
    expect_ranks(c, truth, shares);
    expect_choice(c, shares);
    for (const AttentionKernels &kernels : sets) {
      std::vector<float> scores(size + 1, CANARY), ranks(c.stride + 1, CANARY);
      for (int begin = 0, end; begin < c.pages; begin = end) {
        end = pick(c.setup.random, begin + 1, c.pages);
        kernels.score_pages(c.scoring(scores, kv_head, begin, end));
      }
      expect(std::memcmp(scores.data(), truth.data(), scores.size() * 4) == 0, "seed %u: scores of %s", seed, kernels.name);
      kernels.rank({scores.data(), c.stride, shape.group(), c.pages, shape.soft_cap, ranks.data()});
      expect(std::memcmp(ranks.data(), shares.data(), ranks.size() * 4) == 0, "seed %u: ranks of %s", seed, kernels.name);
    }
  }
}

// What attention over some pages lacks of all, against a softmax in double.
void the_mass_left_out_is_that_of_a_softmax(uint32_t seed) {
  Case c = random_case(seed);
  const Shape &shape = c.setup.shape;
  const int32_t optional = count_optional(c.setup.page_table.data(), c.pages);
  if (optional < 2 || shape.soft_cap > 0.0f) return;
  const int32_t read = pick(c.setup.random, 1, optional - 1), kv_head = 0;
  std::vector<float> scores(size_t(shape.group()) * c.stride), ranks(c.stride),
      out(size_t(c.setup.tokens) * shape.heads * shape.head_dim);
  std::vector<float> scratch(attend_scratch_floats(shape.head_dim));
  plain::score_pages(c.scoring(scores, kv_head, 0, c.pages));
  plain::rank({scores.data(), c.stride, shape.group(), c.pages, 0.0f, ranks.data()});
  std::vector<uint64_t> keys(c.pages);
  std::vector<int32_t> words(c.pages * 2);
  choose_pages(c.setup.page_table.data(), c.pages, read, ranks.data(), keys.data(), words.data());
  const int chosen = c.pages - optional + read, last = c.setup.tokens - 1;
  const int32_t position = (chosen - 1) * PAGE_TOKENS + last % PAGE_TOKENS;
  std::vector<float> partials[2];
  int blocks[2];
  for (const int some : {0, 1}) {
    AttendParams p = c.setup.attend(c.pool, c.qkv, out, scratch.data(), c.layer, 0, kv_head, last, last + 1);
    if (some) {
      p.pages.page_table = words.data();
      p.row_pos = &position - p.token_begin;
      p.block_end = position / BLOCK_TOKENS + 1;
    }
    blocks[some] = p.block_end;
    partials[some].resize(size_t(p.block_end) * shape.group() * (2 + shape.head_dim));
    p.partials = partials[some].data();
    plain::attend(p);
  }
  for (int head = 0; head < shape.group(); ++head) {
    const float *query = c.query(kv_head) + head * shape.head_dim;
    std::vector<double> scores(c.setup.tokens);
    double most = -1e300, all = 0.0, left = 0.0, size = 0.0, spread = 0.0;
    for (int j = 0; j <= last; ++j) {
      double step = 0.0, squares = 0.0;
      for (int d = 0; d < shape.head_dim; ++d) {
        const Kept key = c.kept_key(j / PAGE_TOKENS, kv_head, j % PAGE_TOKENS, d);
        scores[j] += query[d] * key.value();
        step = std::max(step, std::fabs(query[d] * key.scale) / 127);
        squares += (key.code - 7.5) * (key.code - 7.5);
      }
      if (c.keys(j / PAGE_TOKENS, kv_head).format == PageFormat::int4)
        spread = std::max(spread, step * std::sqrt(squares / 12));
      most = std::max(most, scores[j]);
      size = std::max(size, std::fabs(scores[j]));
    }
    for (int j = 0; j <= last; ++j) {
      all += std::exp(scores[j] - most);
      const int32_t word = c.setup.page_table[j / PAGE_TOKENS * 2];
      bool is_read = false;
      for (int i = 0; i < chosen; ++i) is_read |= words[i * 2] == word;
      if (!is_read) left += std::exp(scores[j] - most);
    }
    const float found = omitted_share(mass_of_row(partials[1].data(), blocks[1], shape.group(), head, shape.head_dim),
                                      mass_of_row(partials[0].data(), blocks[0], shape.group(), head, shape.head_dim));
    if (size > 50.0) continue;  // the steps of q and K move large scores by more than is told here
    // Of int4 K a score has the spread of q's 127 steps beside.
    expect(std::fabs(found - left / all) <= 5e-3 + spread, "seed %u: %g is left out, softmax says %g", seed, double(found),
           left / all);
  }
}

}  // namespace
}  // namespace edge

int main(int argc, char **argv) {
  const int cases = argc > 1 ? std::atoi(argv[1]) : 40;
  const uint32_t seed = argc > 2 ? uint32_t(std::atoi(argv[2])) : 1;
  const std::vector<edge::AttentionKernels> sets = edge::attention_kernels();
  for (int i = 0; i < cases; ++i) {
    edge::every_instruction_set_scores_and_ranks_as_the_plain_loops(seed + uint32_t(i), sets);
    edge::the_mass_left_out_is_that_of_a_softmax(seed + uint32_t(i));
  }
  return edge::summary("choice", cases, seed, sets);
}
