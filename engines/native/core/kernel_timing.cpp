#include "kernel_timing.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "plan.h"
#include "sizes.h"
#include "team.h"

namespace edge {
namespace {

constexpr int64_t HUGE_PAGE = 2 << 20, PATTERN = 1 << 20;
constexpr int ROW_REPEATS = 16;      // of kernels that work along rows: a pass must last longer than the start of one
constexpr int PREFILL_ROWS = 128;    // a chunk
constexpr int PREFILL_TILE = 64;     // tokens of one task
constexpr int32_t LEAST_STRIPS = 8;  // of a matrix, a thread

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Memory on large pages, so that it is as fast as what bandwidth.h reads. Any two bytes of it are a half of usual size; as
// quants any bytes do.
class Block {
 public:
  explicit Block(int64_t bytes) : bytes_(align_up(std::max<int64_t>(bytes, 1), HUGE_PAGE)) {
    void *block = nullptr;
    if (posix_memalign(&block, HUGE_PAGE, static_cast<size_t>(bytes_))) return;
    data_ = static_cast<uint8_t *>(block);
    madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
    uint32_t random = 1;
    for (int64_t at = 0; at < PATTERN; at += 2) {
      random = random * 1664525u + 1013904223u;
      const uint16_t half = static_cast<uint16_t>(0x2800u + (random >> 20) + (random & 0x8000u));
      std::memcpy(data_ + at, &half, 2);
    }
    for (int64_t at = PATTERN; at < bytes_; at += PATTERN) {
      std::memcpy(data_ + at, data_, static_cast<size_t>(PATTERN));
    }
  }
  ~Block() { std::free(data_); }
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;

  uint8_t *data() const { return data_; }
  template <class T>
  T *as() const {
    return reinterpret_cast<T *>(data_);
  }

 private:
  int64_t bytes_;
  uint8_t *data_ = nullptr;
};

// A pass: parts go to whichever thread asks, so that all is done however many threads the system lets run.
class Timed {
 public:
  virtual ~Timed() = default;
  virtual bool good() const = 0;  // whether the memory was there
  virtual int parts(int threads) const { return threads; }
  virtual void run(int part, int parts, int thread) = 0;
  KernelTiming timing;  // of a pass, without its seconds
};

struct Share {
  int32_t begin, end;
  Share(int32_t count, int part, int parts)
      : begin(static_cast<int32_t>(int64_t(count) * part / parts)),
        end(static_cast<int32_t>(int64_t(count) * (part + 1) / parts)) {}
};

// Rows as `norm` leaves them for matrices, with what it reads.
class RowsMemory {
 public:
  RowsMemory(const Kernels &kernels, int32_t count, int32_t width)
      : count_(count),
        inputs_(static_cast<int32_t>(align_up(width, STEP))),
        cells_(int64_t(count) * inputs_),
        source_(cells_ * 4),
        plain_(cells_ * 4),
        steps_(cells_ / STEP * int64_t(sizeof(RowStep))),
        weight_(int64_t(width) * 4) {
    if (!good()) return;
    for (int64_t i = 0; i < cells_; ++i) source_.as<float>()[i] = static_cast<float>((i * 29) % 61 - 30);
    for (int32_t i = 0; i < width; ++i) weight_.as<float>()[i] = 1.0f;
    norm(kernels, 0, count);
  }
  bool good() const { return source_.data() && plain_.data() && steps_.data() && weight_.data(); }
  Rows rows() const { return {steps_.as<RowStep>(), inputs_}; }
  const float *plain() const { return plain_.as<float>(); }
  int32_t inputs() const { return inputs_; }
  int32_t count() const { return count_; }
  void norm(const Kernels &kernels, int32_t begin, int32_t end, bool with_plain = true) const {
    const Rows quantised = rows();
    kernels.norm({source_.as<float>(), inputs_, weight_.as<float>(), inputs_, 1e-5f, &quantised,
                  with_plain ? plain_.as<float>() : nullptr, inputs_, begin, end});
  }

 private:
  const int32_t count_, inputs_;
  const int64_t cells_;
  Block source_, plain_, steps_, weight_;
};

Weight matrix_of(const KernelCase &timed, int64_t bytes, int threads) {
  TensorRecord record{timed.kind, STRIP, timed.inputs, timed.group, timed.minima, 0, 0};
  const int64_t strips = std::max<int64_t>(bytes / weight_geometry(record).strip_bytes, int64_t(LEAST_STRIPS) * threads);
  record.outputs = static_cast<int32_t>(std::min<int64_t>(strips * STRIP, INT32_MAX / STRIP * STRIP));
  return weight_geometry(record);
}

// One matrix, or a gate and its other half, of `bytes` in all: threads take ranges of strips.
class Products final : public Timed {
 public:
  Products(const Kernels &kernels, const KernelCase &timed, int threads)
      : kernels_(kernels),
        rows_(kernels, timed.rows, timed.inputs),
        is_gated_(timed.kernel == TimedKernel::gated),
        weight_(matrix_of(timed, timed.bytes / (is_gated_ ? 2 : 1), threads)),
        strips_(divide_up(weight_.outputs, STRIP)),
        matrices_(weight_.strip_bytes * strips_ * (is_gated_ ? 2 : 1)),
        y_(int64_t(weight_.outputs) * timed.rows * 4) {
    weight_.data = matrices_.data();
    up_ = weight_;
    up_.data = matrices_.data() + weight_.strip_bytes * strips_;
    timing.bytes = static_cast<double>(weight_.strip_bytes) * strips_ * (is_gated_ ? 2 : 1);
    timing.operations = 2.0 * weight_.outputs * timed.inputs * timed.rows * (is_gated_ ? 2 : 1);
  }
  bool good() const override { return rows_.good() && matrices_.data() && y_.data(); }
  void run(int part, int parts, int) override {
    const Share share(strips_, part, parts);
    const Rows rows = rows_.rows();
    if (is_gated_) {
      kernels_.gated({&weight_,
                      &up_,
                      &rows,
                      rows_.plain(),
                      rows_.inputs(),
                      y_.as<float>(),
                      weight_.outputs,
                      Activation::silu,
                      0,
                      rows_.count(),
                      share.begin,
                      share.end,
                      {}});
    } else {
      kernels_.matmul({&weight_,
                       &rows,
                       rows_.plain(),
                       rows_.inputs(),
                       y_.as<float>(),
                       weight_.outputs,
                       0,
                       0,
                       rows_.count(),
                       share.begin,
                       share.end,
                       {}});
    }
  }

 private:
  const Kernels &kernels_;
  RowsMemory rows_;
  const bool is_gated_;
  Weight weight_, up_;
  const int32_t strips_;
  Block matrices_, y_;
};

class Norms final : public Timed {
 public:
  Norms(const Kernels &kernels, const KernelCase &timed) : kernels_(kernels), rows_(kernels, timed.rows, timed.inputs) {
    timing.bytes = 4.0 * timed.rows * timed.inputs * ROW_REPEATS;
  }
  bool good() const override { return rows_.good(); }
  void run(int part, int parts, int) override {
    const Share share(rows_.count(), part, parts);
    for (int i = 0; i < ROW_REPEATS; ++i) rows_.norm(kernels_, share.begin, share.end, false);
  }

 private:
  const Kernels &kernels_;
  RowsMemory rows_;
};

// One sequence whose pages, of as many layers as fill `bytes`, lie one after another.
class Pages : public Timed {
 public:
  Pages(const Kernels &kernels, const KernelCase &timed, int32_t rows, int threads)
      : kernels_(kernels),
        timed_(timed),
        pages_count_(divide_up(timed.context, PAGE_TOKENS)),
        layer_bytes_(int64_t(timed.kv_heads) * timed.head_dim * PAGE_TOKENS * 2),
        layers_(static_cast<int32_t>(std::max<int64_t>(1, timed.bytes / (layer_bytes_ * 2 * pages_count_)))),
        width_(int64_t(timed.heads + 2 * timed.kv_heads) * timed.head_dim),
        scratch_floats_(align_up(attend_scratch_floats(timed.head_dim), 16)),
        row_seq_(static_cast<size_t>(rows)),
        row_pos_(static_cast<size_t>(rows)),
        angles_(static_cast<size_t>(int64_t(rows) * timed.head_dim / 2), 0.6f),
        pool_(align_up(layer_bytes_ * layers_, OFFSET_UNIT) * 2 * pages_count_),
        qkv_(width_ * rows * 4),
        out_(int64_t(timed.heads) * timed.head_dim * rows * 4),
        scratch_(scratch_floats_ * threads * 4) {
    const int64_t extent = align_up(layer_bytes_ * layers_, OFFSET_UNIT) / OFFSET_UNIT;
    for (int32_t i = 0; i < 2 * pages_count_; ++i) table_.push_back(static_cast<int32_t>(i * extent));
    for (int32_t row = 0; row < rows; ++row) row_pos_[static_cast<size_t>(row)] = timed.context - rows + row;
    for (int64_t i = 0; qkv_.data() && i < width_ * rows; ++i) qkv_.as<float>()[i] = static_cast<float>(i % 31 - 15) * 0.05f;
  }
  bool good() const override { return pool_.data() && qkv_.data() && out_.data() && scratch_.data(); }

 protected:
  LayerPages pages(int32_t layer) const {
    return {pool_.data(), table_.data(), pages_count_, layer, timed_.heads, timed_.kv_heads, timed_.head_dim};
  }
  // Rows [begin, end) of one layer and kv head, over everything that they see.
  void attend(int32_t layer, int32_t kv_head, int32_t begin, int32_t end, int thread) const {
    AttendParams p{};
    p.pages = pages(layer);
    p.qkv = qkv_.as<float>();
    p.qkv_stride = width_;
    p.out = out_.as<float>();
    p.out_stride = int64_t(timed_.heads) * timed_.head_dim;
    p.row_pos = row_pos_.data();
    p.kv_head = kv_head;
    p.token_begin = begin;
    p.token_end = end;
    p.block_end = divide_up(row_pos_[static_cast<size_t>(end - 1)] + 1, BLOCK_TOKENS);
    p.scratch = scratch_.as<float>() + scratch_floats_ * thread;
    kernels_.attend(p);
  }

  const Kernels &kernels_;
  const KernelCase timed_;
  const int32_t pages_count_;
  const int64_t layer_bytes_;
  const int32_t layers_;
  const int64_t width_, scratch_floats_;
  std::vector<int32_t> row_seq_, row_pos_, table_;
  std::vector<float> angles_;
  Block pool_, qkv_, out_, scratch_;
};

class Rotaries final : public Pages {
 public:
  Rotaries(const Kernels &kernels, const KernelCase &timed, int threads) : Pages(kernels, timed, timed.rows, threads) {
    timing.bytes = 4.0 * static_cast<double>(width_) * timed.rows * ROW_REPEATS;
  }
  void run(int part, int parts, int) override {
    const Share share(timed_.rows, part, parts);
    for (int i = 0; i < ROW_REPEATS; ++i) {
      RotaryParams p{};
      p.pages = pages(0);
      p.qkv = p.queries = qkv_.as<float>();
      p.qkv_stride = p.queries_stride = width_;
      p.row_seq = row_seq_.data();
      p.row_pos = row_pos_.data();
      p.cosines = p.sines = angles_.data();
      p.epsilon = 1e-5f;
      p.scale = 1.0f;
      p.row_begin = share.begin;
      p.row_end = share.end;
      p.kv_head_end = p.pages.num_kv_heads;
      p.append = 1;
      kernels_.rotary(p);
    }
  }
};

class Decode final : public Pages {
 public:
  Decode(const Kernels &kernels, const KernelCase &timed, int threads) : Pages(kernels, timed, 1, threads) {
    timing.bytes = 2.0 * static_cast<double>(layer_bytes_) * layers_ * timed.context / PAGE_TOKENS;
    timing.operations = 4.0 * timed.heads * timed.head_dim * timed.context * layers_;
  }
  void run(int part, int parts, int thread) override {
    const Share share(layers_ * timed_.kv_heads, part, parts);
    for (int32_t task = share.begin; task < share.end; ++task) {
      attend(task / timed_.kv_heads, task % timed_.kv_heads, 0, 1, thread);
    }
  }
};

// One layer: a part is a kv head and a tile of tokens, the longest first.
class Prefill final : public Pages {
 public:
  Prefill(const Kernels &kernels, const KernelCase &timed, int threads)
      : Pages(kernels, timed, std::min(PREFILL_ROWS, timed.context), threads) {
    const double rows = static_cast<double>(row_pos_.size());
    timing.operations = 4.0 * timed.heads * timed.head_dim * rows * (timed.context - (rows - 1) / 2);
    timing.bytes = 2.0 * static_cast<double>(layer_bytes_) * timed.context / PAGE_TOKENS;
  }
  int parts(int) const override { return tiles() * timed_.kv_heads; }
  void run(int part, int, int thread) override {
    const int32_t tile = tiles() - 1 - part / timed_.kv_heads;
    const int32_t rows = static_cast<int32_t>(row_pos_.size());
    attend(0, part % timed_.kv_heads, tile * PREFILL_TILE, std::min(rows, (tile + 1) * PREFILL_TILE), thread);
  }

 private:
  int32_t tiles() const { return divide_up(static_cast<int32_t>(row_pos_.size()), PREFILL_TILE); }
};

struct Pass {
  Timed *timed;
  int parts;
  Counter counter;
};

void run_parts(void *context, int thread) {
  Pass &pass = *static_cast<Pass *>(context);
  int32_t part, end;
  while (pass.counter.take(pass.parts, 1, &part, &end)) pass.timed->run(part, pass.parts, thread);
}

KernelTiming best_pass(Timed &&timed, Team &team, double seconds) {
  if (!timed.good()) return {};
  Pass pass{&timed, timed.parts(team.size()), {}};
  KernelTiming best = timed.timing;
  const double deadline = now() + seconds;
  for (int round = 0; round < 2 || now() < deadline; ++round) {
    pass.counter.next.store(0, std::memory_order_relaxed);
    const double start = now();
    team.run(run_parts, &pass);
    const double took = now() - start;
    if (round == 1 || (round > 1 && took < best.seconds)) best.seconds = took;
  }
  return best;
}

}  // namespace

KernelTiming time_kernel(const Kernels &kernels, const KernelCase &timed, int threads, double seconds) {
  Team team(threads);
  if (team.size() == 0) return {};
  switch (timed.kernel) {
    case TimedKernel::matmul:
    case TimedKernel::gated: return best_pass(Products(kernels, timed, threads), team, seconds);
    case TimedKernel::norm: return best_pass(Norms(kernels, timed), team, seconds);
    case TimedKernel::rotary: return best_pass(Rotaries(kernels, timed, threads), team, seconds);
    case TimedKernel::decode: return best_pass(Decode(kernels, timed, threads), team, seconds);
    case TimedKernel::prefill: return best_pass(Prefill(kernels, timed, threads), team, seconds);
  }
  return {};
}

}  // namespace edge
