// The CPU engine: a step list over one mapped weight file and one pool of KV pages.
// Owns: the workspace, its threads. Needs: a mapped file, a pool, kernels. Never: sampling, page policy.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "step.h"
#include "team.h"
#include "workspace.h"

namespace edge {

// Whether the caller is the last of `parts` that count themselves off; then the count is 0 again.
inline bool is_last_of(int32_t parts, std::atomic<int32_t> &done) {
  if (done.fetch_add(1, std::memory_order_acq_rel) + 1 < parts) return false;
  done.store(0, std::memory_order_relaxed);
  return true;
}

// Rows of a buffer that a product reads: row r is at x + which[r] * width, or x + r * width without `which`.
struct Source {
  const float *x;
  int32_t width;
  bool normed;
  const int32_t *which;
};

class Engine {
 public:
  // `weights` is a mapping of the file. On a bad record the status names the tensor or op.
  static Status open(const uint8_t *weights, int64_t weight_bytes, const std::vector<TensorRecord> &tensors,
                     const std::vector<Op> &ops, const ModelShape &shape, const Limits &limits, const Kernels *kernels,
                     int threads, uint8_t *pool, int64_t pool_bytes, std::unique_ptr<Engine> *engine);
  ~Engine();
  Engine(const Engine &) = delete;
  Engine &operator=(const Engine &) = delete;

  // Writes step.logits and step.not_finite: of a sequence whose q, k or v held an infinity, a NaN, or a q whose scores could be
  // infinite, logits and new K and V are worth nothing. The other sequences of the step are what they would be without it.
  Status run(const Step &step);
  void cancel() { cancel_.store(true, std::memory_order_relaxed); }  // ends the running step before its next op

 private:
  Engine(const Limits &limits, const Kernels *kernels, int threads);
  static void enter(void *self, int thread);
  void work(int thread);
  void fill_rotary(Counter &counter);
  // Each op below is run by every thread at once and shares its parts out through the op's own counters.
  void embed(const Op &op, Counter *counters);
  void project(const Op &op, Counter *counters, int thread);
  void attend(const Op &op, Counter *counters, int thread);
  void add(const Op &op, Counter *counters, int thread);
  void gated(const Op &op, Counter *counters, int thread);
  void head(const Op &op, Counter *counters, int thread);
  void move_pages(const Op &op, Counter &counter);
  void turn(const RotaryParams &rotary);
  // Chooses the pages of every Choice of the group, and appends K and V of their rows; ends at a barrier.
  void choose(const Op &op, RotaryParams rotary, bool own, Counter &counter, int thread);
  // Attention as if the pages of a choice were all.
  void read_chosen(const Choice &choice, int32_t index, AttendParams *params) const;
  void merge(const GroupTasks &tasks, int32_t index);
  void count_omitted(const GroupTasks &tasks, const Probe &probe);
  void write_omitted();
  // `rows`: with the queries, scratch and numbers of the op.
  void weigh(const Op &op, const MassTask &task, const AttendParams &rows, int thread);
  // rms_norm where op.norm is given, then the row forms that the weights want. Few rows are made by every thread for itself,
  // many are shared out and end at a barrier.
  InputRows rows_from(const Source &source, const Op &op, int32_t rows, Counter &counter, int thread);
  // The matrices of an op and their strips: side by side, or of a gated pair those of one.
  struct Matrices {
    const Weight *weights[3];
    int32_t count, strips;
  };
  Matrices matrices_of(const Op &op) const;
  // A thread's piece of an op's strips; behind it, up to share_end, lie those that it will probably take next.
  struct Strips {
    int32_t begin, end, share_end;
  };
  bool take_strips(int32_t strips, int32_t rows, int thread, Counter &counter, Strips *found);
  Upcoming strips_from(const Op &op, int32_t begin, int32_t end) const;
  // What the thread will read when the strips before `done` are: its own next ones, at last its share of the next op that
  // multiplies. Nothing with many rows, where memory is not the limit.
  Upcoming upcoming(const Op &op, const Strips &strips, int32_t done, int32_t rows, int thread) const;
  size_t following_product(size_t index) const;
  void multiply(const Op &op, const InputRows &x, int32_t rows, float *y, int64_t y_stride, bool add, Counter &counter,
                int thread);
  LayerPages pages(const Op &op) const;

  const Limits limits_;
  const Kernels *const kernels_;
  Team team_;
  Plan plan_;
  uint8_t *pool_ = nullptr;
  int64_t pool_bytes_ = 0;
  void *block_ = nullptr;  // the workspace's memory
  Workspace space_{};
  std::vector<GroupTasks> tasks_;  // by layer group, for the step under way
  std::unique_ptr<Counter[]> counters_;
  const Step *step_ = nullptr;
  std::atomic<bool> cancel_{false};
  bool stop_[2] = {};  // whether the step ends early, of even and of odd ops
};

}  // namespace edge
