// Records of plans and steps that nobody wrote: whatever read_plan and check_step let pass runs inside the file, the pool and
// the arrays of its caller. The proof is a build with EDGE_SANITIZE; without it this shows that nothing ends the process.
// Usage: plan_fuzz [cases] [seed]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "engine.h"
#include "expect.h"
#include "sizes.h"

namespace edge {
namespace {

constexpr int32_t INTERESTING[] = {-1,
                                   0,
                                   1,
                                   2,
                                   3,
                                   15,
                                   16,
                                   17,
                                   31,
                                   32,
                                   33,
                                   63,
                                   64,
                                   127,
                                   128,
                                   255,
                                   256,
                                   1000,
                                   4095,
                                   4096,
                                   65535,
                                   1 << 20,
                                   1 << 24,
                                   1 << 28,
                                   1 << 30,
                                   INT32_MAX - 15,
                                   INT32_MAX - 1,
                                   INT32_MAX,
                                   INT32_MIN,
                                   INT32_MIN + 1,
                                   -2,
                                   -32,
                                   -128,
                                   0x7f800000,
                                   0x7fc00000};

class Random {
 public:
  explicit Random(uint32_t seed) : source_(seed) {}
  int32_t below(int64_t count) { return static_cast<int32_t>(source_() % static_cast<uint64_t>(count)); }
  bool one_in(int32_t count) { return below(count) == 0; }
  int32_t number(int32_t old) {
    if (one_in(3)) return static_cast<int32_t>(static_cast<uint32_t>(old) + static_cast<uint32_t>(below(5)) - 2u);
    if (one_in(4)) return static_cast<int32_t>(source_());
    return INTERESTING[below(std::size(INTERESTING))];
  }
  template <class T>
  T &of(std::vector<T> &values) {
    return values[below(static_cast<int64_t>(values.size()))];
  }
  // A word of a record of 32-bit fields replaced.
  template <class T>
  void spoil(T &record) {
    static_assert(sizeof(T) % 4 == 0);
    char *word = reinterpret_cast<char *>(&record) + 4 * below(sizeof(T) / 4);
    int32_t old;
    std::memcpy(&old, word, 4);
    old = number(old);
    std::memcpy(word, &old, 4);
  }

 private:
  std::mt19937 source_;
};

struct Model {
  ModelShape shape;
  std::vector<TensorRecord> tensors;
  std::vector<Op> ops;
  int64_t bytes = 0;

  int32_t add(TensorRecord record) {
    record.offset = align_up(bytes, WEIGHT_ALIGN);
    record.bytes = tensor_bytes(record);
    bytes = record.offset + record.bytes;
    tensors.push_back(record);
    return static_cast<int32_t>(tensors.size()) - 1;
  }
  int32_t vector(int32_t size) { return add({WeightKind::fp32, size, 1, 0, 0, 0, 0}); }
  int32_t matrix(Random &random, int32_t outputs, int32_t inputs) {
    const int32_t kind = WeightKind::fp16 + random.below(3);
    const int32_t group = kind == WeightKind::fp16 ? 0 : kind == WeightKind::int8 && random.one_in(2) ? 16 : 32;
    return add({kind, outputs, inputs, group, kind == WeightKind::fp16 ? 0 : random.below(2), 0, 0});
  }
};

Op step_of(int32_t code) {
  Op op{};
  op.code = code;
  op.weight0 = op.weight1 = op.weight2 = op.bias = op.norm = op.post_norm = op.q_norm = op.k_norm = op.inv_freq = NO_TENSOR;
  op.epsilon = 1e-5f;
  op.scale = 1.0f;
  return op;
}

Model valid_model(Random &random) {
  constexpr int32_t DIMS[] = {2, 6, 8, 16, 32, 40, 64};
  Model model;
  const int32_t kv_heads = 1 + random.below(2), heads = kv_heads * (1 + random.below(3)),
                dim = DIMS[random.below(std::size(DIMS))];
  const int32_t hidden = 1 + random.below(80), middle = 1 + random.below(80), groups = 1 + random.below(2);
  model.shape = {1 + random.below(60), hidden, middle, heads, kv_heads, dim, groups};
  const int32_t query = heads * dim, kv = kv_heads * dim;
  Op embed = step_of(OpCode::embed);
  embed.weight0 = model.matrix(random, model.shape.vocab_size, hidden);
  model.ops.push_back(embed);
  const int32_t inv_freq = model.vector(dim / 2), norm = model.vector(hidden);
  for (int32_t layer = 0; layer < groups + random.below(2); ++layer) {
    Op project = step_of(OpCode::project), attend = step_of(OpCode::attend), add = step_of(OpCode::add);
    project.weight0 = model.matrix(random, random.one_in(2) ? query + 2 * kv : query, hidden);
    if (model.tensors.back().outputs == query) {
      project.weight1 = model.matrix(random, kv, hidden);
      project.weight2 = model.matrix(random, kv, hidden);
    }
    if (random.one_in(2)) project.bias = model.vector(query + 2 * kv);
    project.norm = norm;
    attend.inv_freq = inv_freq;
    attend.group = layer % groups;
    attend.group_layer = layer / groups;
    attend.window = attend.group ? 20 : 0;
    if (random.one_in(2)) attend.q_norm = attend.k_norm = model.vector(dim);
    if (random.one_in(2)) attend.soft_cap = 5.0f;
    add.input = Input::attention;
    add.weight0 = model.matrix(random, hidden, query);
    Op gated = step_of(OpCode::gated), last = step_of(OpCode::add);
    gated.weight0 = model.matrix(random, middle, hidden);
    gated.weight1 = model.matrix(random, middle, hidden);
    gated.norm = norm;
    gated.activation = Activation::silu + random.below(2);
    last.input = Input::feed_forward;
    last.weight0 = model.matrix(random, hidden, middle);
    if (random.one_in(2)) last.post_norm = norm;
    for (const Op &op : {project, attend, add, gated, last}) model.ops.push_back(op);
  }
  Op head = step_of(OpCode::head);
  head.weight0 = random.one_in(2) ? embed.weight0 : model.matrix(random, model.shape.vocab_size, hidden);
  head.norm = norm;
  model.ops.push_back(head);
  return model;
}

void damage(Random &random, Model &model) {
  for (int32_t times = 1 + random.below(3); times > 0; --times) {
    switch (random.below(8)) {
      case 0: random.spoil(model.shape); break;
      case 1:
      case 2: random.spoil(random.of(model.ops)); break;
      case 3: random.spoil(random.of(model.tensors)); break;
      case 4: {  // a shape of another size, with the bytes that it then has
        TensorRecord &record = random.of(model.tensors);
        (random.one_in(2) ? record.outputs : record.inputs) = random.number(record.outputs);
        if (check_form(record, 0).good()) record.bytes = tensor_bytes(record);
        break;
      }
      case 5: std::swap(random.of(model.ops), random.of(model.ops)); break;
      case 6: random.of(model.ops) = random.of(model.ops); break;
      default:
        if (model.ops.size() > 1 && random.one_in(2)) model.ops.pop_back();
        if (model.tensors.size() > 1 && random.one_in(3)) model.tensors.pop_back();
        if (random.one_in(30)) model.ops.clear();
        if (model.ops.empty()) return;
    }
  }
}

// Arrays of exactly the sizes that the binding checks, so that whoever reads on leaves them.
struct Arrays {
  std::vector<int32_t> token_ids, query_start, kv_len, page_table, page_moves, logit_rows, read_pages, watch, not_finite;
  std::vector<float> logits, omitted;
  std::vector<int64_t> mass;
  Step step;
};

Arrays valid_step(Random &random, const ModelShape &shape, const std::vector<int32_t> &words) {
  Arrays a;
  const int32_t seqs = 1 + random.below(2);
  a.query_start.push_back(0);
  for (int32_t seq = 0; seq < seqs; ++seq) {
    const int32_t fresh = 1 + random.below(4), before = random.below(124);
    for (int32_t i = 0; i < fresh; ++i) a.token_ids.push_back(random.below(shape.vocab_size));
    a.query_start.push_back(static_cast<int32_t>(a.token_ids.size()));
    a.kv_len.push_back(before + fresh);
  }
  const int32_t max_pages = 4;
  for (int64_t i = 0; i < int64_t(shape.num_groups) * seqs * max_pages * 2; ++i) {
    a.page_table.push_back(words[i % words.size()]);
  }
  // A format that the heads can mostly be kept in, and to which `targets` allows to move.
  const auto some_format = [&](int32_t side, int32_t targets) {
    int32_t format = random.below(4);
    for (int32_t tries = 0; tries < 8; ++tries, format = random.below(4)) {
      if (can_hold(side, format, shape.head_dim) && targets >> format & 1) break;
    }
    return format << FORMAT_SHIFT;
  };
  for (int32_t seq = 0; seq < seqs; ++seq) {  // of pages in front of the one that is written
    const int32_t fresh = a.query_start[seq + 1] - a.query_start[seq];
    for (int32_t group = 0; group < shape.num_groups; ++group) {
      for (int32_t page = 0; page < (a.kv_len[seq] - fresh) / PAGE_TOKENS; ++page) {
        for (int32_t side = 0; side < 2; ++side)
          a.page_table[((int64_t(group) * seqs + seq) * max_pages + page) * 2 + side] |= some_format(side, ~0);
      }
    }
  }
  for (int32_t moves = random.below(3); moves > 0; --moves) {
    const int32_t side = random.below(2), source = some_format(side, ~0);
    const int32_t target = some_format(side, MOVE_TARGETS[source >> FORMAT_SHIFT]);
    const int32_t record[] = {random.below(shape.num_groups), side, words[0] | source, words[words.size() - moves] | target};
    a.page_moves.insert(a.page_moves.end(), std::begin(record), std::end(record));
  }
  for (int32_t i = random.below(3); i > 0; --i) a.logit_rows.push_back(random.below(static_cast<int64_t>(a.token_ids.size())));
  for (int32_t seq = 0; seq < seqs && random.one_in(2); ++seq) a.read_pages.push_back(random.below(5) - 2);
  a.read_pages.resize(a.read_pages.empty() ? 0 : seqs);
  for (int32_t seq = 0; seq < seqs && random.one_in(2); ++seq) {
    a.watch.push_back(random.below(a.query_start[seq + 1] - a.query_start[seq] + 1));
  }
  a.watch.resize(a.watch.empty() ? 0 : seqs);
  if (random.one_in(2)) {
    std::vector<int32_t> *all[] = {&a.token_ids,  &a.query_start, &a.kv_len,     &a.page_table,
                                   &a.page_moves, &a.logit_rows,  &a.read_pages, &a.watch};
    for (int32_t times = 1 + random.below(2); times > 0; --times) {
      std::vector<int32_t> &values = *all[random.below(std::size(all))];
      if (!values.empty()) random.spoil(random.of(values));
    }
  }
  a.logits.resize(a.logit_rows.size() * shape.vocab_size);
  a.not_finite.resize(seqs);
  a.omitted.resize(seqs);
  a.mass.resize(a.watch.empty() ? 0 : int64_t(shape.num_groups) * seqs * max_pages);
  a.step = {a.token_ids.data(),
            a.query_start.data(),
            a.kv_len.data(),
            a.page_table.data(),
            a.page_moves.data(),
            a.logit_rows.data(),
            a.read_pages.empty() ? nullptr : a.read_pages.data(),
            a.watch.empty() ? nullptr : a.watch.data(),
            a.logits.data(),
            a.not_finite.data(),
            a.omitted.data(),
            a.mass.data(),
            static_cast<int32_t>(a.token_ids.size()),
            seqs,
            max_pages,
            static_cast<int32_t>(a.page_moves.size() / 4),
            static_cast<int32_t>(a.logit_rows.size())};
  return a;
}

struct Counts {
  int64_t plans = 0, steps = 0;
};

// Of just so many bytes, so that a sanitizer sees the first one behind them; aligned as a mapping is.
void *aligned_bytes(int64_t count) {
  void *at = nullptr;
  if (posix_memalign(&at, WEIGHT_ALIGN, static_cast<size_t>(count))) std::abort();
  return at;
}

void run_case(uint32_t seed, Counts *counts) {
  Random random(seed);
  Model model = valid_model(random);
  std::unique_ptr<void, decltype(&std::free)> file(aligned_bytes(model.bytes), &std::free);
  auto *bytes = static_cast<uint8_t *>(file.get());
  for (int64_t i = 0; i < model.bytes; ++i) bytes[i] = static_cast<uint8_t>(random.below(256));
  const bool whole = random.one_in(4);
  const int64_t file_bytes = model.bytes;
  if (!whole) damage(random, model);
  Plan plan;
  const Status status = read_plan(bytes, file_bytes, model.tensors, model.ops, model.shape, &plan);
  expect(!whole || status.good(), "seed %u: a valid plan is refused: %s", seed, status.message ? status.message : "");
  if (!status.good()) return;
  ++counts->plans;
  if (model.shape.num_groups > 4 || model.shape.vocab_size > 4096) return;  // what a test has room for
  const Limits limits{8, 2, 128, 3};
  int64_t extent = 0;
  for (const int32_t layers : plan.group_layers)
    extent = std::max(extent, align_up(layers * plan.shape.layer_bytes(0, PageFormat::fp16), OFFSET_UNIT));
  const int32_t extents = 9;
  if (extent * extents > 1 << 24) return;
  std::vector<uint8_t> pool(extent * extents);
  std::vector<int32_t> words;
  for (int32_t i = 0; i < extents; ++i) words.push_back(static_cast<int32_t>(i * extent / OFFSET_UNIT));
  const Kernels *tables[MAX_TABLES];
  const Kernels *kernels = tables[random.below(list_kernels(tables))];
  std::unique_ptr<Engine> engine;
  const int threads = random.one_in(50) ? 2 : 1;
  const Status opened = Engine::open(bytes, file_bytes, model.tensors, model.ops, model.shape, limits, kernels, threads,
                                     pool.data(), static_cast<int64_t>(pool.size()), &engine);
  expect(opened.good(), "seed %u: a plan that was read is not opened: %s", seed, opened.message ? opened.message : "");
  if (!opened.good()) return;
  for (int i = 0; i < 3; ++i) {
    const Arrays arrays = valid_step(random, model.shape, words);
    counts->steps += engine->run(arrays.step).good();
  }
}

}  // namespace
}  // namespace edge

int main(int argc, char **argv) {
  const long cases = argc > 1 ? std::atol(argv[1]) : 5000, seed = argc > 2 ? std::atol(argv[2]) : 0;
  edge::Counts counts;
  for (long i = 0; i < cases; ++i) edge::run_case(static_cast<uint32_t>(seed + i), &counts);
  std::printf("plan_fuzz: %ld plans, %lld were read, %lld steps ran, %d failures\n", cases,
              static_cast<long long>(counts.plans), static_cast<long long>(counts.steps), edge::failures);
  return edge::failures || !counts.plans || !counts.steps;
}
