// The AMX products over emulated tiles: equal to the plain loops to the bit on random shapes. On a processor with AMX,
// kernels_test runs the same source over real ones. Usage: amx_test [cases] [seed]
#include <cstdlib>

#include "lanes_avx2.h"
// behind lanes_*.h
#include "amx_emulated.h"
#include "amx_product.h"
#include "kernels_setup.h"

namespace edge {
namespace {

inline Lanes load_ints(const int32_t *x) {
  const __m256i *halves = reinterpret_cast<const __m256i *>(x);
  return Lanes(_mm256_cvtepi32_ps(_mm256_loadu_si256(halves)), _mm256_cvtepi32_ps(_mm256_loadu_si256(halves + 1)));
}

MatrixShape random_shape(int outputs, int inputs, std::mt19937 &random) {
  const int kind = pick(random, 0, 1) ? WeightKind::int4 : WeightKind::int8;
  return {kind, outputs, inputs, pick(random, 0, 1) ? 32 : 16, pick(random, 0, 1) == 1};
}

bool equal(const std::vector<float> &a, const std::vector<float> &b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void test_tiles_give_the_bits_of_the_plain_loops(int number, std::mt19937 &random) {
  // Now and then more rows than a block of tiles, and more steps than a chunk of a strip.
  const int rows = pick(random, 0, 4) ? pick(random, 1, 70) : pick(random, 140, 300);
  const int width = pick(random, 0, 4) ? pick(random, 1, 300) : pick(random, 1000, 2200);
  const int outputs = pick(random, 1, 50), strips = (outputs + STRIP - 1) / STRIP, begin = pick(random, 0, rows - 1);
  const bool extreme = pick(random, 0, 3) == 0;
  const Matrix gate(random_shape(outputs, width, random), random, extreme);
  const Matrix up(random_shape(outputs, width, random), random, extreme);
  std::vector<float> x = normal_floats(size_t(rows) * width, random);
  if (extreme) {
    for (float &value : x) value = value < 0.0f ? -1.0f : 1.0f;
  }
  RowMemory memory(rows, width);
  const Rows quantised = memory.rows();
  plain_kernels()->norm({x.data(), width, nullptr, width, 0.0f, &quantised, nullptr, 0, 0, rows});

  const std::vector<float> before = normal_floats(size_t(rows) * outputs, random);
  std::vector<float> expected = before, found = before;
  MatmulParams matmul{&gate.weight,       &quantised, nullptr, 0, expected.data(), outputs,
                      pick(random, 0, 1), begin,      rows,    0, strips,          {}};
  plain_kernels()->matmul(matmul);
  matmul.y = found.data();
  const int done = matmul_tiles<EmulatedTiles>(matmul);
  expect(done == (rows - begin) / TILE_ROWS * TILE_ROWS, "case %d: %d of %d rows are done", number, done, rows - begin);
  matmul.row_begin += done;
  plain_kernels()->matmul(matmul);
  expect(equal(found, expected), "case %d: kind %d group %d minima %d, %d x %d, %d rows", number, gate.shape.kind,
         gate.shape.group, gate.shape.minima, outputs, width, rows - begin);

  expected = found = before;
  GatedParams gated{&gate.weight, &up.weight,   &quantised, nullptr, 0, expected.data(), outputs, pick(random, 0, 2),
                    begin,        begin + done, 0,          strips,  {}};
  plain_kernels()->gated(gated);
  gated.y = found.data();
  expect(gated_tiles<EmulatedTiles>(gated) == done, "case %d: rows of gated", number);
  expect(equal(found, expected), "case %d: gated, kinds %d %d, %d x %d, %d rows", number, gate.shape.kind, up.shape.kind,
         outputs, width, done);
  expect(EmulatedTiles::configured == 0, "case %d: tiles are still configured", number);
}

void test_fp16_weights_are_left_to_others(std::mt19937 &random) {
  const Matrix matrix({WeightKind::fp16, 16, 64, 0, false}, random);
  const RowMemory memory(32, 64);
  const Rows rows = memory.rows();
  float y = 0.0f;
  expect(matmul_tiles<EmulatedTiles>({&matrix.weight, &rows, memory.plain.data(), 64, &y, 16, 0, 0, 32, 0, 1, {}}) == 0,
         "fp16 weights went to tiles");
}

int run(int cases, uint32_t seed) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c")) {
    std::printf("amx: needs AVX2 for its lanes: skipped\n");
    return 77;
  }
  std::mt19937 random(seed);
  test_fp16_weights_are_left_to_others(random);
  for (int number = 0; number < cases; ++number) test_tiles_give_the_bits_of_the_plain_loops(number, random);
  expect(EmulatedTiles::products > cases, "only %d tile products", EmulatedTiles::products);
  std::printf("amx: %d cases, seed %u, %d tile products: %d failures\n", cases, seed, EmulatedTiles::products, failures);
  return failures ? 1 : 0;
}

}  // namespace
}  // namespace edge

int main(int argc, char **argv) {
  return edge::run(argc > 1 ? std::atoi(argv[1]) : 60, argc > 2 ? uint32_t(std::strtoul(argv[2], nullptr, 10)) : 1);
}
