// What an engine runs: matrices and vectors of one weight file, and the step list over them, checked against each other.
// Owns nothing: it points into the mapped file. Needs: contract.h, kernels.h. Never: runs anything.
#pragma once
#include <cstdint>
#include <vector>

#include "contract.h"
#include "kernels.h"
#include "page_format.h"
#include "status.h"

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

struct ModelShape {
  int32_t vocab_size, hidden_size, intermediate_size, num_heads, num_kv_heads, head_dim, num_groups;

  int64_t query_width() const { return static_cast<int64_t>(num_heads) * head_dim; }
  int64_t qkv_width() const { return static_cast<int64_t>(num_heads + 2 * num_kv_heads) * head_dim; }
  // One layer's part of an extent of K (side 0) or V.
  int64_t layer_bytes(int32_t side, int32_t format) const { return num_kv_heads * part_bytes(side, format, head_dim); }
};

constexpr int32_t MAX_TOKENS = 1 << 24;  // of a context (edge/spec.py); no limit is larger

struct Limits {
  int32_t max_step_tokens;
  int32_t max_sequences;
  int32_t max_context;  // tokens of one sequence
  int32_t max_logit_rows;
};

struct Plan {
  ModelShape shape;
  std::vector<Op> ops;
  std::vector<Weight> weights;         // by tensor index; data null for vectors
  std::vector<const float *> vectors;  // by tensor index; null for matrices
  std::vector<int32_t> rotaries;       // tensor index of each distinct inv_freq
  std::vector<int32_t> windows;        // by layer group; 0: all
  std::vector<int32_t> group_layers;   // layers of each layer group
};

// Whether kind, shape and group of a tensor are any that kernels know; what follows counts on it.
Status check_form(const TensorRecord &record, int where);
// Where a tensor's strips lie, from its record alone.
Weight weight_geometry(const TensorRecord &record);
int64_t tensor_bytes(const TensorRecord &record);
std::vector<int32_t> distinct_rotaries(const std::vector<Op> &ops);

// Fills `plan` over the mapped file. The status names the tensor or the step that does not fit: whatever passes reads and
// writes inside the file, the workspace and the pages that a step names, whoever wrote the package.
Status read_plan(const uint8_t *file, int64_t file_bytes, const std::vector<TensorRecord> &tensors, const std::vector<Op> &ops,
                 const ModelShape &shape, Plan *plan);

}  // namespace edge
