// Random matrices in the strip layout and quantised rows, for the kernel test and bench. Matrices keep what they were packed
// from, so that a test need not trust the packing that it checks.
#pragma once
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels.h"
#include "math.h"
#include "pick.h"

namespace edge {

// Memory that starts on 64 bytes.
template <class T>
class Block {
 public:
  explicit Block(size_t count) : count_(count), raw_(new uint8_t[count * sizeof(T) + 64]()) {
    data_ = reinterpret_cast<T *>((reinterpret_cast<uintptr_t>(raw_.get()) + 63) / 64 * 64);
  }
  T *data() const { return data_; }
  size_t size() const { return count_; }
  T &operator[](size_t i) const { return data_[i]; }

 private:
  size_t count_;
  std::unique_ptr<uint8_t[]> raw_;
  T *data_;
};

struct MatrixShape {
  int kind, outputs, inputs, group;
  bool minima;
};

inline Weight geometry(const MatrixShape &shape) {
  auto aligned = [](int64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; };
  const int32_t inputs = (shape.inputs + STEP - 1) / STEP * STEP;
  Weight w{nullptr, 0, 0, 0, shape.kind, shape.outputs, inputs, shape.group};
  if (shape.kind == WeightKind::fp16) {
    w.strip_bytes = int64_t(inputs) * STRIP * 2;
    return w;
  }
  const int64_t section = aligned(int64_t(inputs) / shape.group * STRIP * 2);
  w.scales_offset = aligned(shape.kind == WeightKind::int4 ? inputs * STRIP / 2 : inputs * STRIP);
  w.minima_offset = shape.minima ? w.scales_offset + section : 0;
  w.strip_bytes = w.scales_offset + section * (shape.minima ? 2 : 1);
  return w;
}

// `extreme`: quants at the ends of their range, where 16-bit sums would overflow.
class Matrix {
 public:
  Matrix(const MatrixShape &shape, std::mt19937 &random, bool extreme = false)
      : shape(shape),
        weight(geometry(shape)),
        values(size_t(shape.outputs) * shape.inputs),
        bytes_(size_t(weight.strip_bytes) * ((shape.outputs + STRIP - 1) / STRIP)) {
    weight.data = bytes_.data();
    std::normal_distribution<float> normal(0.0f, 0.05f);
    if (shape.kind == WeightKind::fp16) {
      for (int o = 0; o < shape.outputs; ++o) {
        for (int k = 0; k < shape.inputs; ++k) {
          const uint16_t half = float_to_half(normal(random));
          put(o / STRIP * weight.strip_bytes + (int64_t(k) * STRIP + o % STRIP) * 2, half);
          values[size_t(o) * shape.inputs + k] = half_to_float(half);
        }
      }
      return;
    }
    const int top = shape.kind == WeightKind::int4 ? 15 : 255;
    for (int o = 0; o < shape.outputs; ++o) {
      const int64_t strip = o / STRIP * weight.strip_bytes;
      float scale = 0.0f, minimum = 0.0f;
      const int end = extreme ? pick(random, 0, 1) * top : -1;
      for (int k = 0; k < shape.inputs; ++k) {
        if (k % shape.group == 0) {
          const int64_t at = (int64_t(k / shape.group) * STRIP + o % STRIP) * 2;
          scale = set_half(strip + weight.scales_offset + at, normal(random) * 0.1f);
          minimum = shape.minima ? set_half(strip + weight.minima_offset + at, normal(random)) : -scale * float(top / 2 + 1);
        }
        const int quant = extreme ? end : pick(random, 0, top);
        put_quant(strip, o % STRIP, k, quant);
        values[size_t(o) * shape.inputs + k] = float(double(scale) * quant + minimum);
      }
    }
  }

  const MatrixShape shape;
  Weight weight;
  std::vector<float> values;  // [outputs][inputs], dequantised

 private:
  void put(int64_t at, uint16_t half) { std::memcpy(bytes_.data() + at, &half, 2); }
  float set_half(int64_t at, float x) {
    const uint16_t half = float_to_half(x);
    put(at, half);
    return half_to_float(half);
  }
  void put_quant(int64_t strip, int lane, int k, int quant) {
    const int inside = k % STEP;
    if (shape.kind == WeightKind::int8) {
      bytes_[strip + k / STEP * 512 + inside / 4 * 64 + 4 * lane + inside % 4] = uint8_t(quant);
    } else {
      uint8_t &both = bytes_[strip + k / STEP * 256 + inside % 16 / 4 * 64 + 4 * lane + inside % 4];
      both = uint8_t(inside < 16 ? (both & 0xf0) | quant : (both & 0x0f) | quant << 4);
    }
  }

  Block<uint8_t> bytes_;
};

// Quantised rows with their memory.
struct RowMemory {
  RowMemory(int rows, int width)
      : inputs((width + STEP - 1) / STEP * STEP), steps(size_t(rows) * inputs / STEP), plain(size_t(rows) * inputs) {}
  Rows rows() const { return {steps.data(), inputs}; }

  int32_t inputs;
  Block<RowStep> steps;  // [rows][inputs / 32]
  Block<float> plain;    // [rows][inputs]
};

inline std::vector<float> normal_floats(size_t count, std::mt19937 &random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (float &value : x) value = normal(random);
  return x;
}

// What this machine runs, the plain loops first.
inline std::vector<const Kernels *> kernels_here() {
  const Kernels *tables[MAX_TABLES];
  return {tables, tables + list_kernels(tables)};
}

}  // namespace edge
