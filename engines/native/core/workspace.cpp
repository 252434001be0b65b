#include "workspace.h"

#include <algorithm>
#include <utility>

#include "sizes.h"

namespace edge {
namespace {

// Hands out aligned pieces of one block; with a null base it only counts.
class Layout {
 public:
  explicit Layout(uint8_t *base) : base_(base) {}
  template <class T>
  T *take(int64_t count) {
    T *at = reinterpret_cast<T *>(base_ + bytes_);
    bytes_ += align_up(count * static_cast<int64_t>(sizeof(T)), ALIGN);
    return base_ ? at : nullptr;
  }
  int64_t bytes() const { return bytes_; }

 private:
  uint8_t *base_;
  int64_t bytes_ = 0;
};

}  // namespace

int64_t scratch_stride(int32_t head_dim) { return align_up(attend_scratch_floats(head_dim), 16); }

Workspace lay_out(uint8_t *base, const std::vector<TensorRecord> &tensors, const std::vector<Op> &ops, const ModelShape &shape,
                  const Limits &limits, int threads) {
  int64_t widest = 0, rows = std::max(limits.max_step_tokens, limits.max_logit_rows);
  bool plain = false;
  for (const TensorRecord &tensor : tensors) {
    if (tensor.kind == WeightKind::fp32) continue;
    widest = std::max<int64_t>(widest, align_up(tensor.inputs, STEP));
    plain = plain || tensor.kind == WeightKind::fp16;
  }
  const int64_t tokens = limits.max_step_tokens, heads = shape.num_heads, dim = shape.head_dim;
  const int64_t blocks = divide_up(limits.max_context, BLOCK_TOKENS), sequences = limits.max_sequences;
  Layout layout(base);
  Workspace space{};
  space.hidden = layout.take<float>(tokens * shape.hidden_size);
  space.qkv = layout.take<float>(tokens * (heads + 2 * shape.num_kv_heads) * dim);
  space.attention = layout.take<float>(tokens * heads * dim);
  space.feed_forward = layout.take<float>(tokens * shape.intermediate_size);
  space.extra = layout.take<float>(tokens * shape.hidden_size);
  for (auto [input, count] : {std::pair{&space.shared, rows}, std::pair{&space.own, int64_t{threads} * OWN_ROWS}}) {
    input->quantised.steps = layout.take<RowStep>(count * widest / STEP);
    if (plain) input->plain = layout.take<float>(count * widest);
  }
  space.plain_stride = widest;
  const int64_t rotary = static_cast<int64_t>(distinct_rotaries(ops).size()) * tokens * dim / 2;
  space.cosines = layout.take<float>(rotary);
  space.sines = layout.take<float>(rotary);
  space.row_seq = layout.take<int32_t>(tokens);
  space.row_pos = layout.take<int32_t>(tokens);
  // DECODE_TOKENS rows of one sequence, or one row of each, twice where it is probed: whichever step has more partials.
  space.partials = layout.take<float>(std::max(int64_t{DECODE_TOKENS}, 2 * sequences) * heads * blocks * (2 + dim));
  space.scratch = layout.take<float>(threads * scratch_stride(shape.head_dim));
  space.queries = layout.take<float>(threads * DECODE_TOKENS * heads * dim);
  const int64_t choices = sequences * shape.num_kv_heads;
  space.page_stride = align_up(divide_up(limits.max_context, PAGE_TOKENS), 16);
  space.page_scores = layout.take<float>(sequences * heads * space.page_stride);
  space.ranks = layout.take<float>(threads * space.page_stride);
  space.powers = layout.take<float>(threads * int64_t{2 * MASS_ROWS} * space.page_stride);
  space.chosen = layout.take<int32_t>(choices * space.page_stride * 2);
  space.keys = layout.take<uint64_t>(threads * space.page_stride);
  space.scored = layout.take<std::atomic<int32_t>>(choices);
  space.probed = layout.take<std::atomic<int32_t>>(choices);
  space.omitted = layout.take<float>(sequences * heads);
  space.merged = layout.take<std::atomic<int32_t>>(2 * choices);
  space.bytes = layout.bytes();
  return space;
}

}  // namespace edge
