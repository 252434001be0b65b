// Row and matrix kernels of every instruction set of this machine: equal to the plain loops to the bit on random shapes,
// however the work is cut, and the plain loops close to double precision. Usage: kernels_test [cases] [seed]
#include <cmath>
#include <cstdlib>
#include <limits>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "expect.h"
#include "kernels_setup.h"

namespace edge {
namespace {

constexpr float CANARY = 12345.0f;
// Equal to the bit; one NaN is as good as another, as instruction sets differ in which operand's they pass on.
template <class T>
bool equal(const T *a, const T *b, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (std::memcmp(a + i, b + i, sizeof(T)) && (a[i] == a[i] || b[i] == b[i])) return false;
  }
  return true;
}

template <class T>
bool equal(const Block<T> &a, const Block<T> &b) {
  return equal(a.data(), b.data(), a.size());
}

bool equal(const std::vector<float> &a, const std::vector<float> &b) {
  return a.size() == b.size() && equal(a.data(), b.data(), a.size());
}

bool equal(const RowMemory &a, const RowMemory &b) {
  for (size_t i = 0; i < a.steps.size(); ++i) {
    const RowStep &left = a.steps[i], &right = b.steps[i];
    // quants; then scale and sums, floats; then zeros
    if (std::memcmp(left.quants, right.quants, sizeof left.quants) || !equal(&left.scale, &right.scale, 1) ||
        !equal(left.sums, right.sums, 2) || !equal(&left.sum, &right.sum, 1) || !equal(left.zeros, right.zeros, 2) ||
        left.zero != right.zero) {
      return false;
    }
  }
  return equal(a.plain, b.plain);
}

void normalise(const Kernels &kernels, const std::vector<float> &x, int width, const float *weight, int row_begin, int row_end,
               RowMemory &out) {
  const Rows rows = out.rows();
  kernels.norm({x.data(), width, weight, width, 1e-5f, &rows, out.plain.data(), out.inputs, row_begin, row_end});
}

// Every finite half as a weight, subnormal ones too, against a single input that is not 0.
void test_every_half_is_read_exactly(const Kernels &kernels) {
  const int outputs = 0x10000;
  Block<uint8_t> bytes(size_t(outputs) * STEP * 2);
  for (int o = 0; o < outputs; ++o) {
    const uint16_t half = uint16_t((o & 0x7c00) == 0x7c00 ? 0 : o);
    std::memcpy(bytes.data() + size_t(o / STRIP) * STEP * STRIP * 2 + o % STRIP * 2, &half, 2);
  }
  const Weight weight{bytes.data(), STEP * STRIP * 2, 0, 0, WeightKind::fp16, outputs, STEP, 0};
  const float x[STEP] = {1.0f};
  std::vector<float> y(outputs);
  kernels.matmul({&weight, nullptr, x, STEP, y.data(), outputs, 0, 0, 1, 0, outputs / STRIP});
  for (int o = 0; o < outputs; ++o) {
    const float expected = half_to_float(uint16_t((o & 0x7c00) == 0x7c00 ? 0 : o));
    expect(y[o] == expected, "%s reads half %04x as %g", kernels.name, o, y[o]);
  }
}

void test_norm_is_close_to_double(std::mt19937 &random) {
  const int width = pick(random, 1, 700);
  const std::vector<float> x = normal_floats(width, random), weight = normal_floats(width, random);
  RowMemory out(1, width);
  normalise(*plain_kernels(), x, width, weight.data(), 0, 1, out);
  double squares = 0;
  for (const float value : x) squares += double(value) * value;
  for (int i = 0; i < out.inputs; ++i) {
    const double exact = i < width ? x[i] / std::sqrt(squares / width + 1e-5) * weight[i] : 0.0;
    expect(std::fabs(out.plain[i] - exact) <= 1e-6 * (1.0 + std::fabs(exact)), "norm of width %d at %d", width, i);
    const double quantised = double(out.steps[i / 32].scale) * out.steps[i / 32].quants[i % 32];
    expect(std::fabs(quantised - exact) <= 0.501 * out.steps[i / 32].scale + 1e-6, "quantise of width %d at %d", width, i);
  }
}

void test_quantising_meets_its_edges(const Kernels &kernels) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x(4 * STEP, 0.0f);
  x[0] = 1e-42f, x[1] = 0x1p-101f;                                              // too small for 127 / x: zero
  x[STEP] = 2.0f, x[STEP + 1] = -infinity;                                      // broken
  for (int i = 0; i < STEP; ++i) x[2 * STEP + i] = (float(i) + 0.5f) / 127.0f;  // ties
  x[2 * STEP] = 1.0f;
  x[3 * STEP] = std::numeric_limits<float>::max();
  RowMemory out(1, int(x.size()));
  normalise(kernels, x, int(x.size()), nullptr, 0, 1, out);
  expect(out.steps[0].scale == 0.0f && out.steps[0].quants[0] == 0 && out.steps[0].sums[0] == 0.0f, "%s: tiny inputs are not 0",
         kernels.name);
  expect(std::isnan(out.steps[1].scale) && std::isnan(out.steps[1].sum), "%s: a broken input does not show in its scale",
         kernels.name);
  expect(out.steps[2].quants[0] == 127 && out.steps[2].quants[4] % 2 == 0, "%s: ties do not go to even", kernels.name);
  expect(out.steps[3].quants[0] == 127 && std::isfinite(out.steps[3].scale), "%s: the largest float", kernels.name);
}

// Rows of int8 at both ends of the range next to normal ones, through norm as everywhere.
std::vector<float> random_rows(int rows, int width, bool extreme, std::mt19937 &random) {
  std::vector<float> x = normal_floats(size_t(rows) * width, random);
  if (extreme) {
    for (float &value : x) value = value < 0.0f || pick(random, 0, 9) ? -1.0f : 1.0f;
  }
  return x;
}

MatrixShape random_shape(int outputs, int inputs, std::mt19937 &random) {
  const int kinds[] = {WeightKind::int4, WeightKind::int4, WeightKind::int8, WeightKind::int8, WeightKind::fp16};
  const int kind = kinds[pick(random, 0, 4)];
  if (kind == WeightKind::fp16) return {kind, outputs, inputs, 0, false};
  return {kind, outputs, inputs, pick(random, 0, 1) ? 32 : 16, pick(random, 0, 1) == 1};
}

// Cuts [0, count) in two at a random place, or not at all.
std::vector<std::pair<int, int>> cuts(int count, std::mt19937 &random) {
  const int at = pick(random, 0, count);
  if (at == 0 || at == count) return {{0, count}};
  return {{at, count}, {0, at}};
}

void test_products(int number, std::mt19937 &random) {
  const int rows = pick(random, 0, 2) ? pick(random, 1, 9) : pick(random, 1, 40), outputs = pick(random, 1, 90);
  const int width = pick(random, 1, 400), strips = (outputs + STRIP - 1) / STRIP, stride = outputs + pick(random, 0, 5);
  const bool extreme = pick(random, 0, 3) == 0;
  const std::vector<float> x = random_rows(rows, width, extreme, random), weight = normal_floats(width, random);
  const float *norm = extreme || pick(random, 0, 3) == 0 ? nullptr : weight.data();
  const Matrix gate(random_shape(outputs, width, random), random, extreme);
  const Matrix up(pick(random, 0, 1) ? gate.shape : random_shape(outputs, width, random), random, extreme);
  const int add = pick(random, 0, 1), activation = pick(random, 0, 2);
  const std::vector<float> before = normal_floats(size_t(rows) * stride, random);
  const auto row_cuts = cuts(rows, random), strip_cuts = cuts(strips, random);

  RowMemory reference(rows, width);
  normalise(*plain_kernels(), x, width, norm, 0, rows, reference);
  const Rows quantised = reference.rows();
  std::vector<float> product = before, gated(before.size(), CANARY);
  MatmulParams matmul{
      &gate.weight, &quantised, reference.plain.data(), reference.inputs, product.data(), stride, add, 0, rows, 0, strips};
  GatedParams gating{
      &gate.weight, &up.weight, &quantised, reference.plain.data(), reference.inputs, gated.data(), stride, activation, 0,
      rows,         0,          strips};
  plain_kernels()->matmul(matmul);
  plain_kernels()->gated(gating);

  const bool whole = gate.shape.kind == WeightKind::fp16;
  for (int row = 0; row < rows; ++row) {
    for (int o = 0; o < stride; ++o) {
      const size_t at = size_t(row) * stride + o;
      if (o >= outputs) {
        expect(product[at] == before[at] && gated[at] == CANARY, "case %d writes behind its outputs", number);
        continue;
      }
      double exact = add ? before[at] : 0.0, magnitude = std::fabs(exact);
      for (int k = 0; k < width; ++k) {
        const size_t i = size_t(row) * reference.inputs + k;
        const double input =
            whole ? reference.plain[i] : double(reference.steps[i / 32].scale) * reference.steps[i / 32].quants[i % 32];
        const double term = input * gate.values[size_t(o) * width + k];
        exact += term;
        magnitude += std::fabs(term);
      }
      // With minima the two parts of a product are larger than the product.
      expect(std::fabs(product[at] - exact) <= 2e-5 * magnitude + 1e-5, "case %d row %d output %d: %g, not %g", number, row, o,
             product[at], exact);
    }
  }

  for (const Kernels *kernels : kernels_here()) {
    RowMemory own(rows, width);
    for (const auto &[begin, end] : row_cuts) normalise(*kernels, x, width, norm, begin, end, own);
    expect(equal(own, reference), "case %d: %s norm, %d rows of %d", number, kernels->name, rows, width);
    std::vector<float> own_product = before, own_gated(before.size(), CANARY);
    matmul.y = own_product.data();
    gating.y = own_gated.data();
    for (const auto &[row_begin, row_end] : row_cuts) {
      for (const auto &[strip_begin, strip_end] : strip_cuts) {
        matmul.row_begin = gating.row_begin = row_begin;
        matmul.row_end = gating.row_end = row_end;
        matmul.strip_begin = gating.strip_begin = strip_begin;
        matmul.strip_end = gating.strip_end = strip_end;
        kernels->matmul(matmul);
        kernels->gated(gating);
      }
    }
    expect(equal(own_product, product), "case %d: %s matmul, kind %d group %d minima %d, %d x %d, %d rows", number,
           kernels->name, gate.shape.kind, gate.shape.group, gate.shape.minima, outputs, width, rows);
    expect(equal(own_gated, gated), "case %d: %s gated, kinds %d %d, activation %d, %d x %d, %d rows", number, kernels->name,
           gate.shape.kind, up.shape.kind, activation, outputs, width, rows);
  }
}

void test_rows(int number, std::mt19937 &random) {
  const int rows = pick(random, 1, 6), width = pick(random, 1, 300), stride = width + pick(random, 0, 3);
  const std::vector<float> x = normal_floats(size_t(rows) * stride, random), weight = normal_floats(width, random);
  const std::vector<float> before = normal_floats(x.size(), random);
  const Matrix table(random_shape(pick(random, 1, 50), width, random), random);
  std::vector<int32_t> tokens(rows);
  for (int32_t &token : tokens) token = pick(random, 0, table.shape.outputs - 1);
  std::vector<float> added, embedded, capped;
  for (const Kernels *kernels : kernels_here()) {
    std::vector<float> h = before, y(size_t(rows) * width), logits = x;
    for (const auto &[begin, end] : cuts(rows, random)) {
      kernels->add_norm({x.data(), stride, h.data(), stride, weight.data(), width, 1e-6f, begin, end});
      kernels->embed({&table.weight, tokens.data(), 1.5f, y.data(), width, begin, end});
    }
    for (float &logit : logits) logit *= 30.0f;
    kernels->soft_cap(logits.data(), int64_t(logits.size()), 20.0f);
    if (kernels == plain_kernels()) added = h, embedded = y, capped = logits;
    expect(equal(h, added), "case %d: %s add_norm, width %d", number, kernels->name, width);
    expect(equal(y, embedded), "case %d: %s embed, kind %d, width %d", number, kernels->name, table.shape.kind, width);
    expect(equal(logits, capped), "case %d: %s soft_cap of %d", number, kernels->name, int(logits.size()));
  }
  for (int row = 0; row < rows; ++row) {
    double squares = 0;
    for (int i = 0; i < width; ++i) squares += double(x[size_t(row) * stride + i]) * x[size_t(row) * stride + i];
    for (int i = 0; i < stride; ++i) {
      const size_t at = size_t(row) * stride + i;
      const double exact = before[at] + (i < width ? x[at] / std::sqrt(squares / width + 1e-6) * weight[i] : 0.0);
      expect(std::fabs(added[at] - exact) < 3e-6 * (1.0 + std::fabs(exact)), "case %d: add_norm at %d", number, i);
      expect(std::fabs(capped[at] - 20.0 * std::tanh(x[at] * 30.0 / 20.0)) < 1e-5, "case %d: soft_cap at %d", number, i);
      if (i >= width) continue;
      const double value = 1.5 * table.values[size_t(tokens[row]) * width + i];
      expect(std::fabs(embedded[size_t(row) * width + i] - value) < 1e-5, "case %d: embed at %d", number, i);
    }
  }
}

// A broken activation must show in every output of its row, and in no other row.
void test_broken_rows_stay_visible_and_alone(const Kernels &kernels, std::mt19937 &random) {
  for (const float broken : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const bool minima : {false, true}) {
      const int width = 96, outputs = 20, rows = 3;
      std::vector<float> x = normal_floats(size_t(rows) * width, random);
      x[width + 40] = broken;
      const Matrix matrix({WeightKind::int4, outputs, width, 32, minima}, random);
      const std::vector<float> weight(width, 1.0f);
      RowMemory out(rows, width);
      normalise(kernels, x, width, weight.data(), 0, rows, out);
      const Rows quantised = out.rows();
      std::vector<float> y(size_t(rows) * outputs);
      kernels.matmul({&matrix.weight, &quantised, nullptr, 0, y.data(), outputs, 0, 0, rows, 0, 2});
      for (int i = 0; i < rows * outputs; ++i) {
        expect(std::isnan(y[i]) == (i / outputs == 1), "%s: row %d output %d of a broken row 1", kernels.name, i / outputs,
               i % outputs);
      }
    }
  }
}

// Tables are also refused where their bits differ from the plain loops: that must not turn into a test of less.
void test_no_promised_instruction_set_is_refused() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    expect(find_kernels("avx2") != nullptr, "the processor promises AVX2, its kernels fail the probe");
  }
  if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw")) {
    expect(find_kernels("avx512vnni") != nullptr, "the processor promises AVX-512 VNNI, its kernels fail the probe");
  }
#elif defined(__aarch64__)
  expect(find_kernels("neon") != nullptr, "the kernels of NEON fail the probe");
  if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) {
    expect(find_kernels("neon-dotprod") != nullptr, "the processor promises dot products, their kernels fail the probe");
    if (getauxval(AT_HWCAP2) & HWCAP2_I8MM) {
      expect(find_kernels("neon-i8mm") != nullptr, "the processor promises i8mm, its kernels fail the probe");
    }
  }
#endif
}

int run(int cases, uint32_t seed) {
  test_no_promised_instruction_set_is_refused();
  std::mt19937 random(seed);
  for (const Kernels *kernels : kernels_here()) {
    test_every_half_is_read_exactly(*kernels);
    test_quantising_meets_its_edges(*kernels);
    test_broken_rows_stay_visible_and_alone(*kernels, random);
    expect(find_kernels(kernels->name) == kernels, "%s is not found by its name", kernels->name);
  }
  expect(find_kernels("auto") == kernels_here().back() && find_kernels("") == kernels_here().back(), "auto is not the best");
  expect(find_kernels("sse9") == nullptr, "an unknown name is found");
  for (int number = 0; number < cases; ++number) {
    test_norm_is_close_to_double(random);
    test_products(number, random);
    test_rows(number, random);
  }
  for (const Kernels *kernels : kernels_here()) std::printf("%s ", kernels->name);
  std::printf("%d cases, seed %u: %d failures\n", cases, seed, failures);
  return failures ? 1 : 0;
}

}  // namespace
}  // namespace edge

int main(int argc, char **argv) {
  return edge::run(argc > 1 ? std::atoi(argv[1]) : 400, argc > 2 ? uint32_t(std::strtoul(argv[2], nullptr, 10)) : 1);
}
