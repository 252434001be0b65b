// Rotary, attend and merge of every instruction set of this machine: equal to the plain loops to the bit on random shapes,
// however the work is cut, and the plain loops close to a naive softmax in double. Usage: attention_test [cases] [seed]
// Pages are fp16 or sealed, K and V each in formats of its own.
#include <cstdio>
#include <cstdlib>

#include "attention_setup.h"
#include "expect.h"

namespace edge {
namespace {

constexpr float CANARY = 12345.0f;

template <class T>
bool equal(const std::vector<T> &a, const std::vector<T> &b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// A case: sequences whose rows [begin, length) are attended after everything before them was written.
struct Case {
  Setup setup;
  std::vector<int> lengths, begins;
  int layer;
  bool sealed;

  // Whole pages of both sides in random formats, or all of them in one pair of formats.
  void seal(std::vector<uint8_t> &pool, uint32_t seed) {
    std::mt19937 random(seed);
    const bool alike = pick(random, 0, 1);
    const int formats[] = {pick(random, 1, 3), pick(random, 1, 3)};
    for (size_t seq = 0; seq < lengths.size(); ++seq) {
      for (int page = 0; page < lengths[seq] / PAGE_TOKENS; ++page) {
        for (const int side : {0, 1}) {
          const int format = alike ? formats[side] : pick(random, 0, 3);
          if (format == PageFormat::fp16 || !can_hold(side, format, setup.shape.head_dim)) continue;
          if (alike && page == 0 && setup.shape.layers % 2) continue;  // the sink
          setup.seal(plain::move, pool, layer, int(seq), page, side, format);
        }
      }
    }
  }

  std::vector<uint8_t> fresh_pool() const { return std::vector<uint8_t>(setup.pool_bytes, 0xff); }  // fp16 NaNs
  size_t out_size() const { return size_t(setup.tokens) * setup.shape.heads * setup.shape.head_dim; }
};

Case random_case(uint32_t seed) {
  std::mt19937 random(seed);
  const int dims[] = {64, 64, 128, 256, 80, 96, 112, 16, 192, 2, 6, 40, 100, 264};
  Shape shape{};
  shape.kv_heads = pick(random, 1, 3);
  shape.heads = shape.kv_heads * pick(random, 1, 9);
  shape.head_dim = dims[pick(random, 0, 13)];
  shape.window = pick(random, 0, 1) ? pick(random, 1, 400) : 0;
  shape.soft_cap = pick(random, 0, 3) ? 0.0f : 5.0f;
  shape.normed = pick(random, 0, 1);
  shape.layers = pick(random, 1, 3);
  std::vector<int> lengths, begins;
  for (int seq = pick(random, 1, 2); seq > 0; --seq) {
    lengths.push_back(pick(random, 0, 2) ? pick(random, 1, 500) : pick(random, 1, 4) * BLOCK_TOKENS);
    begins.push_back(std::max(0, lengths.back() - (pick(random, 0, 1) ? pick(random, 1, 4) : pick(random, 1, 140))));
  }
  Case c{Setup(shape, lengths, seed), lengths, begins, pick(random, 0, shape.layers - 1), pick(random, 0, 2) != 0};
  if (pick(random, 0, 3) == 0) {  // beyond fp16: must saturate
    for (int i = 0; i < 8; ++i) c.setup.x[pick(random, 0, int(c.setup.x.size()) - 1)] = i % 2 ? 1e6f : -65519.0f;
  }
  return c;
}

// Result of every sequence's last rows, one task a (sequence, kv head); CANARY elsewhere.
std::vector<float> attend_whole(const AttentionKernels &kernels, Case &c, std::vector<uint8_t> &pool,
                                const std::vector<float> &qkv, float *scratch) {
  std::vector<float> out(c.out_size(), CANARY);
  for (size_t seq = 0; seq < c.lengths.size(); ++seq) {
    for (int head = 0; head < c.setup.shape.kv_heads; ++head) {
      kernels.attend(c.setup.attend(pool, qkv, out, scratch, c.layer, int(seq), head, c.begins[seq], c.lengths[seq]));
    }
  }
  return out;
}

// The same in random token ranges, each direct or through partials of random block ranges, in random order.
std::vector<float> attend_cut(const AttentionKernels &kernels, Case &c, std::vector<uint8_t> &pool,
                              const std::vector<float> &qkv, float *scratch, std::mt19937 &random) {
  const Shape &shape = c.setup.shape;
  std::vector<float> out(c.out_size(), CANARY);
  for (size_t seq = 0; seq < c.lengths.size(); ++seq) {
    const bool decode = pick(random, 0, 1);
    for (int begin = c.begins[seq], end; begin < c.lengths[seq]; begin = end) {
      end = std::min(c.lengths[seq], begin + (decode ? 1 : pick(random, 1, 40)));
      for (int head = 0; head < shape.kv_heads; ++head) {
        AttendParams p = c.setup.attend(pool, qkv, out, scratch, c.layer, int(seq), head, begin, end);
        if (pick(random, 0, 1)) {
          kernels.attend(p);
          continue;
        }
        const int blocks = p.block_end, rows = (end - begin) * shape.group();
        const int64_t block_floats = int64_t(rows) * (2 + shape.head_dim);
        std::vector<float> partials(blocks * block_floats + 1, CANARY);
        for (int first = 0, last; first < blocks; first = last) {
          last = pick(random, first + 1, blocks);
          p.block_begin = first;
          p.block_end = last;
          p.partials = partials.data() + first * block_floats;
          kernels.attend(p);
        }
        expect(partials.back() == CANARY, "%s wrote behind its partials", kernels.name);
        kernels.merge({partials.data(), blocks, shape.head_dim, shape.heads, shape.kv_heads, head, out.data(), p.out_stride,
                       p.token_begin, p.token_end});
      }
    }
  }
  return out;
}

// One head of one row of q, normed, rotated and scaled as the formulas say, in double.
void expect_rotation(Case &c, const std::vector<float> &qkv, int row, int head) {
  const Setup &setup = c.setup;
  const int dim = setup.shape.head_dim, half = dim / 2;
  const int64_t at = row * setup.shape.width() + head * dim;
  double squares = 0.0, scale = 1.0 / std::sqrt(double(dim));
  for (int d = 0; d < dim; ++d) squares += double(setup.x[at + d]) * setup.x[at + d];
  const double inverse = setup.shape.normed ? 1.0 / std::sqrt(squares / dim + 1e-5) : 1.0;
  for (int d = 0; d < dim; ++d) {
    const int i = d % half;
    double first = setup.x[at + i] * inverse, second = setup.x[at + half + i] * inverse;
    if (setup.shape.normed) first *= setup.q_norm[i], second *= setup.q_norm[half + i];
    const double cosine = setup.cosines[int64_t(row) * half + i], sine = setup.sines[int64_t(row) * half + i];
    const double expected = scale * (d < half ? first * cosine - second * sine : second * cosine + first * sine);
    const double size = scale * (std::fabs(first) + std::fabs(second));
    expect(std::fabs(qkv[at + d] - expected) <= 1e-6 * size, "plain rotary is %g, the formula says %g", double(qkv[at + d]),
           expected);
  }
}

// One row of attention as the formula says, in double.
void expect_naive_softmax(Case &c, std::vector<uint8_t> &pool, const std::vector<float> &qkv, const std::vector<float> &out,
                          int seq, int position, int head) {
  const Shape &shape = c.setup.shape;
  const int row = c.setup.first_row[seq] + position, kv_head = head / shape.group(), dim = shape.head_dim;
  const float *query = qkv.data() + row * shape.width() + head * dim;
  std::vector<double> sum(dim, 0.0);
  double total = 0.0, largest = 0.0, largest_value = 0.0, largest_factor = 0.0, spread = 0.0, scores[2048];
  const int oldest = shape.window ? std::max(0, position - shape.window + 1) : 0;
  for (int pass = 0; pass < 2; ++pass) {
    for (int j = oldest; j <= position; ++j) {
      const Part keys = part_of(c.setup.pages(pool, c.layer), seq, j / PAGE_TOKENS, 0, kv_head);
      const Part values = part_of(c.setup.pages(pool, c.layer), seq, j / PAGE_TOKENS, 1, kv_head);
      double score = 0.0, most = 0.0, squares = 0.0;
      for (int d = 0; d < dim; ++d) {
        const Kept kept = kept_at(keys.bytes, 0, keys.format, dim, j % PAGE_TOKENS, d);
        const double key = kept.value();
        most = std::max(most, std::fabs(double(query[d]) * kept.scale));
        squares += (kept.code - 7.5) * (kept.code - 7.5);
        score += double(query[d]) * key;
        largest_factor = std::max({largest_factor, std::fabs(key), std::fabs(double(query[d]))});
        for (int slot = 0; keys.format != PageFormat::fp16 && slot < PAGE_TOKENS;
             ++slot) {  // a sealed channel's range is shared
          largest_factor = std::max(largest_factor, std::fabs(stored(keys.bytes, 0, keys.format, dim, slot, d)));
        }
      }
      if (keys.format == PageFormat::int4) spread = std::max(spread, most / 127 * std::sqrt(squares / 12));
      if (shape.soft_cap > 0.0f) score = shape.soft_cap * std::tanh(score / shape.soft_cap);
      if (pass == 0) largest = j == oldest ? score : std::max(largest, score);
      if (pass == 0) continue;
      scores[j] = std::exp(score - largest);
      total += scores[j];
      for (int d = 0; d < dim; ++d) {
        const double value = stored(values.bytes, 1, values.format, dim, j % PAGE_TOKENS, d);
        sum[d] += scores[j] * value;
        largest_value = std::max(largest_value, std::fabs(value));
      }
    }
  }
  for (int d = 0; d < dim; ++d) {
    const double expected = sum[d] / total, got = out[(int64_t(row) * shape.heads + head) * dim + d];
    // A channel of q or K at the end of fp16 leaves the others few steps, and large scores magnify what is lost.
    if (largest_factor > 1000.0 || std::fabs(largest) > 100.0) continue;
    // The steps of V and of weights lose 1/4000 of the largest V; those of q and K move scores, all the more the larger they
    // are. Of int4 K a score has the spread of q's 127 steps beside.
    expect(std::fabs(got - expected) <= (5e-3 + spread) * largest_value, "plain attention is %g, softmax says %g", got,
           expected);
  }
}

void every_cut_and_instruction_set_gives_the_bits_of_the_plain_loops(uint32_t seed, const std::vector<AttentionKernels> &sets) {
  Case c = random_case(seed);
  const Shape &shape = c.setup.shape;
  char name[200];
  std::snprintf(name, sizeof name, "seed %u: heads %d/%d dim %d window %d cap %g normed %d sealed %d rows %d of %d", seed,
                shape.heads, shape.kv_heads, shape.head_dim, shape.window, double(shape.soft_cap), shape.normed, c.sealed,
                c.lengths[0] - c.begins[0], c.lengths[0]);
  const int64_t floats = attend_scratch_floats(shape.head_dim);
  std::vector<float> scratch(floats + 1, std::nanf(""));
  scratch[floats] = CANARY;

  std::vector<uint8_t> truth_pool = c.fresh_pool();
  std::vector<float> truth_qkv = c.setup.x, truth;
  plain::rotary(c.setup.rotary(truth_pool, truth_qkv, c.layer));
  const std::vector<uint8_t> written = truth_pool;
  if (c.sealed) c.seal(truth_pool, seed);
  for (size_t seq = 0; seq < c.lengths.size(); ++seq) c.setup.free_behind_window(truth_pool, c.layer, int(seq), c.begins[seq]);
  const std::vector<int32_t> table_after = c.setup.page_table;
  truth = attend_whole(sets[0], c, truth_pool, truth_qkv, scratch.data());
  for (size_t i = 0; i < truth.size(); ++i) {
    const int row = int(i / (shape.heads * shape.head_dim)), seq = c.setup.row_seq[row];
    const bool asked = c.setup.row_pos[row] >= c.begins[seq];
    expect(asked ? std::isfinite(truth[i]) : truth[i] == CANARY, "%s: row %d is %g", name, row, double(truth[i]));
  }
  for (int i = 0; i < 4; ++i) {
    expect_rotation(c, truth_qkv, pick(c.setup.random, 0, c.setup.tokens - 1), pick(c.setup.random, 0, shape.heads - 1));
    const int seq = pick(c.setup.random, 0, int(c.lengths.size()) - 1);
    expect_naive_softmax(c, truth_pool, truth_qkv, truth, seq, pick(c.setup.random, c.begins[seq], c.lengths[seq] - 1),
                         pick(c.setup.random, 0, shape.heads - 1));
  }

  for (const AttentionKernels &kernels : sets) {
    Case fresh = random_case(seed);
    std::vector<uint8_t> pool = fresh.fresh_pool();
    std::vector<float> qkv = fresh.setup.x;
    RotaryParams p = fresh.setup.rotary(pool, qkv, c.layer);
    for (int begin = 0; begin < c.setup.tokens; begin = p.row_end) {
      p.row_begin = begin;
      p.row_end = std::min(c.setup.tokens, begin + pick(c.setup.random, 1, 200));
      kernels.rotary(p);
    }
    expect(equal(pool, written), "%s: K and V in the pages of %s", name, kernels.name);
    for (int row = 0; row < c.setup.tokens; ++row) {  // k of qkv is scratch
      expect(std::memcmp(qkv.data() + row * shape.width(), truth_qkv.data() + row * shape.width(),
                         size_t(shape.heads) * shape.head_dim * 4) == 0,
             "%s: rotated q of %s", name, kernels.name);
    }
    fresh.setup.page_table = table_after;
    expect(equal(attend_whole(kernels, fresh, truth_pool, truth_qkv, scratch.data()), truth), "%s: attend of %s", name,
           kernels.name);
    for (int cuts = kernels.attend == plain::attend ? 1 : 3; cuts > 0; --cuts) {  // the plain loops are slow
      expect(equal(attend_cut(kernels, fresh, truth_pool, truth_qkv, scratch.data(), c.setup.random), truth),
             "%s: attend of %s in pieces", name, kernels.name);
    }
    expect(scratch[floats] == CANARY, "%s: %s wrote behind its scratch", name, kernels.name);
  }
}

void a_row_that_sees_nothing_gives_zeros(const AttentionKernels &kernels) {
  Setup setup({6, 2, 64, 16, 0.0f, false, 1}, {300}, 7);
  std::vector<uint8_t> pool(setup.pool_bytes, 0xff);
  std::vector<float> qkv = setup.x, out(size_t(setup.tokens) * 6 * 64, CANARY), scratch(attend_scratch_floats(64));
  kernels.rotary(setup.rotary(pool, qkv, 0));
  for (const int begin : {299, 260}) {
    AttendParams p = setup.attend(pool, qkv, out, scratch.data(), 0, 0, 1, begin, 300);
    p.block_end = 1;  // rows from 260 on see nothing older than 244
    kernels.attend(p);
    std::vector<float> partials(size_t(300 - begin) * 3 * 66, CANARY);
    p.partials = partials.data();
    kernels.attend(p);
    for (size_t i = 0; i < partials.size(); i += 66)
      expect(partials[i] == NO_MAXIMUM, "%s: partial of a blind row", kernels.name);
    for (int row = begin; row < 300; ++row) {
      for (int i = 3 * 64; i < 6 * 64; ++i) expect(out[row * 6 * 64 + i] == 0.0f, "%s: a blind row is not zero", kernels.name);
    }
    out.assign(out.size(), CANARY);
    kernels.merge({partials.data(), 1, 64, 6, 2, 1, out.data(), 6 * 64, begin, 300});
    for (int i = 3 * 64; i < 6 * 64; ++i)
      expect(out[299 * 6 * 64 + i] == 0.0f, "%s: a blind row does not merge to zero", kernels.name);
  }
}

}  // namespace
}  // namespace edge

int main(int argc, char **argv) {
  const int cases = argc > 1 ? std::atoi(argv[1]) : 40;
  const uint32_t seed = argc > 2 ? uint32_t(std::atoi(argv[2])) : 1;
  const std::vector<edge::AttentionKernels> sets = edge::attention_kernels();
  for (const edge::AttentionKernels &kernels : sets) edge::a_row_that_sees_nothing_gives_zeros(kernels);
  for (int i = 0; i < cases; ++i)
    edge::every_cut_and_instruction_set_gives_the_bits_of_the_plain_loops(seed + uint32_t(i), sets);
  return edge::summary("attention", cases, seed, sets);
}
