// The CPU engine: a step list over one mapped weight file and one pool of KV pages.
// Owns: the weight mapping, the pool, the workspace, its threads. Needs: kernels.h, team.h. Never: sampling, page policy.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "contract.h"
#include "kernels.h"
#include "status.h"
#include "team.h"

namespace edge {

// A tensor of the weight file. Matrices are [outputs, inputs]; fp32 vectors have inputs = 1.
struct TensorRecord {
  int32_t kind;  // WeightKind
  int32_t outputs;
  int32_t inputs;  // logical K; the file pads it to STEP
  int32_t group;
  int32_t minima;  // 1: the strips have minima
  int64_t offset;  // in the file, a multiple of WEIGHT_ALIGN
  int64_t bytes;
};

// Where a tensor's strips lie, from its record alone.
Weight weight_geometry(const TensorRecord &record);
int64_t tensor_bytes(const TensorRecord &record);

struct ModelShape {
  int32_t vocab_size, hidden_size, intermediate_size, num_heads, num_kv_heads, head_dim, num_groups;
};

struct Limits {
  int32_t max_step_tokens;
  int32_t max_sequences;
  int32_t max_context;  // tokens of one sequence
  int32_t max_logit_rows;
};

// One step, packed over its sequences (edge/executors/base.py, StepInput). Arrays are the caller's.
struct Step {
  const int32_t *token_ids;    // [num_tokens]
  const int32_t *query_start;  // [num_seqs + 1]
  const int32_t *kv_len;       // [num_seqs], the state after this step
  const int32_t *page_table;   // [groups][num_seqs][max_pages][2]
  const int32_t *page_moves;   // [num_moves][4]
  const int32_t *logit_rows;   // [num_logit_rows]
  float *logits;               // [num_logit_rows][vocab_size]
  int32_t num_tokens, num_seqs, max_pages, num_moves, num_logit_rows;
};

// Everything that the workspace holds, laid out one after another in a single block.
struct Workspace {
  float *hidden, *qkv, *attention, *feed_forward, *extra, *logit_hidden;
  Rows rows;
  float *plain;  // fp32 rows for fp16 weights; null where the plan has none
  int64_t plain_stride;
  float *cosines, *sines;  // [distinct inv_freq][max_step_tokens][head_dim / 2]
  int32_t *row_seq, *row_pos;
  float *partials, *scratch;
  int64_t bytes;
};

class Engine {
 public:
  // `weights` is a mapping of the file. On a bad record the status names the tensor or op.
  static Status open(const uint8_t *weights, int64_t weight_bytes, const std::vector<TensorRecord> &tensors,
                     const std::vector<Op> &ops, const ModelShape &shape, const Limits &limits, const Kernels *kernels,
                     int threads, uint8_t *pool, int64_t pool_bytes, std::unique_ptr<Engine> *engine);
  // Bytes of workspace that such an engine allocates.
  static int64_t workspace_bytes(const std::vector<TensorRecord> &tensors, const std::vector<Op> &ops, const ModelShape &shape,
                                 const Limits &limits, int threads);
  ~Engine();
  Engine(const Engine &) = delete;
  Engine &operator=(const Engine &) = delete;

  Status run(const Step &step);
  void cancel() { cancel_.store(true, std::memory_order_relaxed); }  // ends the running step before its next op

 private:
  // Query rows of one kv head that one thread attends at a time.
  struct AttendTask {
    int32_t seq, kv_head, token_begin, token_end, block_begin, block_end;
    int64_t partials;  // float offset, or -1: merged where it is computed
  };
  struct MergeTask {
    int32_t kv_head, token_begin, token_end, blocks;
    int64_t partials;
  };
  struct GroupTasks {
    std::vector<AttendTask> attend;
    std::vector<MergeTask> merge;
  };

  Engine(const ModelShape &shape, const Limits &limits, const Kernels *kernels, int threads);
  Status check(const Step &step) const;
  Status check_pages(const Step &step, int32_t seq) const;
  bool in_pool(int32_t word, int32_t group) const;
  void plan_attention(const Step &step);
  static void enter(void *self, int thread);
  void work(int thread);
  void fill_rotary(Counter &counter);
  // Each op below is run by every thread at once and shares its parts out through the op's own counters.
  void embed(const Op &op, Counter *counters);
  void project(const Op &op, Counter *counters);
  void attend(const Op &op, Counter *counters, int thread);
  void add(const Op &op, Counter *counters);
  void gated(const Op &op, Counter *counters);
  void head(const Op &op, Counter *counters);
  void move_pages(const Op &op, Counter &counter);
  // rms_norm where op.norm is given, then the row forms that the weights want; ends at a barrier.
  Rows rows_from(const float *x, int64_t stride, int32_t width, const Op &op, bool normed, int32_t rows, Counter &counter);
  void multiply(const Weight *const *weights, int32_t count, const Rows &x, int32_t rows, float *y, int64_t y_stride, bool add,
                Counter &counter);
  LayerPages pages(const Op &op) const;

  const ModelShape shape_;
  const Limits limits_;
  const Kernels *const kernels_;
  Team team_;
  std::vector<Op> ops_;
  std::vector<Weight> weights_;         // by tensor index; data null for vectors
  std::vector<const float *> vectors_;  // by tensor index; null for matrices
  std::vector<int32_t> windows_;        // by layer group
  std::vector<int32_t> group_layers_;   // layers of each layer group
  int64_t layer_bytes_ = 0;             // one layer's part of an extent
  uint8_t *pool_ = nullptr;
  int64_t pool_bytes_ = 0;
  void *block_ = nullptr;  // the workspace's memory
  Workspace space_{};
  std::vector<int32_t> rotaries_;  // tensor index of each distinct inv_freq
  std::vector<GroupTasks> tasks_;  // by layer group, for the step under way
  std::unique_ptr<Counter[]> counters_;
  const Step *step_ = nullptr;
  std::atomic<bool> cancel_{false};
  bool stop_ = false;
};

}  // namespace edge
