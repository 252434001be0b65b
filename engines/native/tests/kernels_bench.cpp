// Speed of the matrix kernels next to what this machine's memory gives in the same run.
// Usage: kernels_bench [threads, default 2] [instruction set, default every one that works here]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "bandwidth.h"
#include "kernels_setup.h"
#include "team.h"

namespace edge {
namespace {

constexpr int64_t MIB = 1 << 20;
constexpr int64_t BEYOND_CACHE = 96 * MIB;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Matrices one after another, each on a page, as in a weight file. Contents are the same bytes over and over: halves of
// either sign, and any quants.
class WeightFile {
 public:
  explicit WeightFile(int64_t bytes) : bytes_(size_t(bytes) + WEIGHT_ALIGN) {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = uint8_t(i % 2 ? 0x20 + i * 97 % 0x60 % 16 : i * 59 >> 3);
    const uintptr_t start = reinterpret_cast<uintptr_t>(bytes_.data());
    next_ = bytes_.data() + (WEIGHT_ALIGN - start % WEIGHT_ALIGN) % WEIGHT_ALIGN;
  }
  Weight add(const MatrixShape &shape) {
    Weight w = geometry(shape);
    w.data = next_;
    const int64_t bytes = w.strip_bytes * ((shape.outputs + STRIP - 1) / STRIP);
    next_ += (bytes + WEIGHT_ALIGN - 1) / WEIGHT_ALIGN * WEIGHT_ALIGN;
    return w;
  }

 private:
  Block<uint8_t> bytes_;
  uint8_t *next_;
};

int64_t bytes_of(const Weight &w) { return w.strip_bytes * ((w.outputs + STRIP - 1) / STRIP); }

// One step of a model: groups of matrices, a barrier behind each group, every thread an even share of every matrix.
struct Product {
  const Weight *weight;
  const Weight *up;  // gated with it; null: a product alone
  bool last;         // of its group
};

struct Pass {
  const Kernels *kernels;
  Team *team;
  const std::vector<Product> *products;
  const RowMemory *rows;  // wide enough for every product
  int count;              // rows
  float *y;
};

void run_pass(void *context, int thread) {
  const Pass &pass = *static_cast<Pass *>(context);
  for (const Product &product : *pass.products) {
    const Weight &w = *product.weight;
    const int strips = (w.outputs + STRIP - 1) / STRIP, threads = pass.team->size();
    const int begin = strips * thread / threads, end = strips * (thread + 1) / threads;
    Rows rows = pass.rows->rows();
    rows.inputs = w.inputs;
    if (product.up) {
      pass.kernels->gated({&w,
                           product.up,
                           &rows,
                           pass.rows->plain.data(),
                           w.inputs,
                           pass.y,
                           w.outputs,
                           Activation::silu,
                           0,
                           pass.count,
                           begin,
                           end,
                           {}});
    } else {
      pass.kernels->matmul({&w, &rows, pass.rows->plain.data(), w.inputs, pass.y, w.outputs, 0, 0, pass.count, begin, end, {}});
    }
    if (product.last) pass.team->barrier();
  }
}

// Best seconds of a pass, of at least `rounds` and a quarter second.
double best_seconds(Pass pass, int rounds) {
  double best = 1e9;
  const double start = now();
  for (int round = 0; round < rounds || now() - start < 0.25; ++round) {
    const double begin = now();
    pass.team->run(run_pass, &pass);
    best = std::min(best, now() - begin);
  }
  return best;
}

struct Work {
  int64_t bytes = 0;
  double operations = 0;  // a row
  explicit Work(const std::vector<Product> &products) {
    for (const Product &product : products) {
      for (const Weight *w : {product.weight, product.up}) {
        if (!w) continue;
        bytes += bytes_of(*w);
        operations += 2.0 * w->outputs * w->inputs;
      }
    }
  }
};

void fill(RowMemory &rows, std::mt19937 &random) {
  const std::vector<float> x = normal_floats(rows.plain.size(), random);
  const Rows quantised = rows.rows();
  const int count = int(x.size()) / rows.inputs;
  plain_kernels()->norm(
      {x.data(), rows.inputs, nullptr, rows.inputs, 0.0f, &quantised, rows.plain.data(), rows.inputs, 0, count});
}

// SmolLM2-135M: 30 layers of int4 with minima, an int8 head.
void bench_model(const std::vector<const Kernels *> &sets, Team &team, const RowMemory &rows, float *y) {
  WeightFile file(110 * MIB);
  std::vector<Weight> weights;
  for (int layer = 0; layer < 30; ++layer) {
    const int shapes[][2] = {{576, 576}, {192, 576}, {192, 576}, {576, 576}, {1536, 576}, {1536, 576}, {576, 1536}};
    for (const auto &shape : shapes) weights.push_back(file.add({WeightKind::int4, shape[0], shape[1], 32, true}));
  }
  weights.push_back(file.add({WeightKind::int8, 49152, 576, 32, false}));
  std::vector<Product> decode;
  for (int layer = 0; layer < 30; ++layer) {
    const Weight *w = &weights[size_t(layer) * 7];
    decode.insert(decode.end(), {{w, nullptr, false},
                                 {w + 1, nullptr, false},
                                 {w + 2, nullptr, true},
                                 {w + 3, nullptr, true},
                                 {w + 4, w + 5, true},
                                 {w + 6, nullptr, true}});
  }
  const std::vector<Product> prefill = decode;  // the head is for the asked rows only
  decode.push_back({&weights.back(), nullptr, true});
  std::printf("SmolLM2-135M, int4 and an int8 head: matrices of one step\n");
  for (const Kernels *kernels : sets) {
    const double peak = read_bandwidth(team.size(), BEYOND_CACHE, 10);
    const double one = best_seconds({kernels, &team, &decode, &rows, 1, y}, 10);
    const double many = best_seconds({kernels, &team, &prefill, &rows, 128, y}, 2);
    const Work step(decode), prompt(prefill);
    std::printf("  %-10s 1 row %6.2f ms %5.1f GB/s, %3.0f %% of %.1f   128 rows %6.1f ms %5.0f GOPS\n", kernels->name,
                one * 1e3, double(step.bytes) / one / 1e9, 100.0 * double(step.bytes) / one / peak, peak / 1e9, many * 1e3,
                prompt.operations * 128 / many / 1e9);
  }
}

// One kind: copies of one matrix, beyond the cache.
void bench_kind(const char *name, MatrixShape shape, const std::vector<const Kernels *> &sets, Team &team,
                const RowMemory &rows, float *y) {
  WeightFile file(BEYOND_CACHE + 8 * MIB);
  std::vector<Weight> weights;
  for (int64_t bytes = 0; bytes < BEYOND_CACHE; bytes += bytes_of(weights.back())) weights.push_back(file.add(shape));
  std::vector<Product> products, few;
  for (const Weight &w : weights) products.push_back({&w, nullptr, true});
  few.assign(products.begin(), products.begin() + std::min<int64_t>(8, int64_t(products.size())));
  const Work work(products), work_few(few);
  const double peak = read_bandwidth(team.size(), BEYOND_CACHE, 5);
  std::printf("%s [%d, %d]\n", name, shape.outputs, shape.inputs);
  for (const Kernels *kernels : sets) {
    const double one = best_seconds({kernels, &team, &products, &rows, 1, y}, 3);
    std::printf("  %-10s 1 row %5.1f GB/s (%3.0f %%)   GOPS of 1, 2, 4, 8, 128 rows:", kernels->name,
                double(work.bytes) / one / 1e9, 100.0 * double(work.bytes) / one / peak);
    for (const int count : {1, 2, 4, 8, 128}) {
      const bool is_many = count > 8;
      const double best = count == 1 ? one : best_seconds({kernels, &team, is_many ? &few : &products, &rows, count, y}, 2);
      std::printf(" %5.0f", (is_many ? work_few : work).operations * count / best / 1e9);
    }
    std::printf("\n");
  }
}

// Kernels that work along rows, on one thread and in its cache.
void bench_rows(const std::vector<const Kernels *> &sets, const RowMemory &rows, std::mt19937 &random) {
  constexpr int COUNT = 128, WIDTH = 576;
  const std::vector<float> x = normal_floats(size_t(COUNT) * WIDTH, random), weight(WIDTH, 1.0f);
  std::vector<float> h = x;
  const Rows quantised = rows.rows();
  std::printf("rows of %d, ns a row on one thread\n", WIDTH);
  for (const Kernels *kernels : sets) {
    double norm = 1e9, add_norm = 1e9, soft_cap = 1e9;
    for (int round = 0; round < 200; ++round) {
      const double start = now();
      kernels->norm({x.data(), WIDTH, weight.data(), WIDTH, 1e-5f, &quantised, nullptr, 0, 0, COUNT});
      const double normed = now();
      kernels->add_norm({x.data(), WIDTH, h.data(), WIDTH, weight.data(), WIDTH, 1e-5f, 0, COUNT});
      const double added = now();
      kernels->soft_cap(h.data(), int64_t(h.size()), 50.0f);
      norm = std::min(norm, normed - start);
      add_norm = std::min(add_norm, added - normed);
      soft_cap = std::min(soft_cap, now() - added);
    }
    std::printf("  %-10s norm and quantise %.0f   add_norm %.0f   soft_cap %.0f\n", kernels->name, norm / COUNT * 1e9,
                add_norm / COUNT * 1e9, soft_cap / COUNT * 1e9);
  }
}

int run(int threads, const char *name) {
  std::vector<const Kernels *> sets;
  for (const Kernels *kernels : kernels_here()) {
    if (name ? !std::strcmp(name, kernels->name) : kernels != plain_kernels()) sets.push_back(kernels);
  }
  if (sets.empty()) {
    std::printf("%s does not run here\n", name ? name : "no instruction set but plain");
    return 1;
  }
  std::mt19937 random(1);
  RowMemory rows(128, 1536);
  fill(rows, random);
  std::vector<float> y(size_t(128) * 1536 + 49152);
  Team team(threads);
  std::printf("%d threads\n", team.size());
  bench_model(sets, team, rows, y.data());
  bench_kind("int4, group 32, minima", {WeightKind::int4, 1536, 576, 32, true}, sets, team, rows, y.data());
  bench_kind("int4, group 32", {WeightKind::int4, 1536, 576, 32, false}, sets, team, rows, y.data());
  bench_kind("int8, group 32", {WeightKind::int8, 1536, 576, 32, false}, sets, team, rows, y.data());
  bench_kind("int8, group 16, minima", {WeightKind::int8, 1536, 576, 16, true}, sets, team, rows, y.data());
  bench_kind("fp16", {WeightKind::fp16, 1536, 576, 0, false}, sets, team, rows, y.data());
  bench_rows(sets, rows, random);
  return 0;
}

}  // namespace
}  // namespace edge

int main(int argc, char **argv) { return edge::run(argc > 1 ? std::atoi(argv[1]) : 2, argc > 2 ? argv[2] : nullptr); }
