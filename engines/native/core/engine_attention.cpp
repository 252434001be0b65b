// The attention step of the engine: angles, moves of pages, rotary, attention, merging of partials.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "engine.h"

namespace edge {
namespace {

constexpr float INFINITE = __builtin_inff();
constexpr float TOO_LARGE = 0x1p64f;  // of q: scores of less stay finite, whatever K is

// Whether all of x [count] are numbers whose magnitude is below `bound`.
bool are_below(float bound, const float *x, int64_t count) {
  uint32_t largest = 0, bound_bits;
  std::memcpy(&bound_bits, &bound, sizeof bound);
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, sizeof bits);
    largest = std::max(largest, bits & 0x7fffffffu);
  }
  return largest < bound_bits;
}

}  // namespace

// Angles as float32(position) * inv_freq, like the portable graph; their cosines in double, rounded once.
void Engine::fill_rotary(Counter &counter) {
  const int32_t half = plan_.shape.head_dim / 2, tokens = step_->num_tokens;
  int32_t begin, end;
  while (counter.take(tokens, 8, &begin, &end)) {
    for (size_t table = 0; table < plan_.rotaries.size(); ++table) {
      const float *inv_freq = plan_.vectors[plan_.rotaries[table]];
      for (int32_t row = begin; row < end; ++row) {
        const int64_t at = (static_cast<int64_t>(table) * limits_.max_step_tokens + row) * half;
        for (int32_t i = 0; i < half; ++i) {
          const float angle = static_cast<float>(space_.row_pos[row]) * inv_freq[i];
          space_.cosines[at + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
          space_.sines[at + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
        }
      }
    }
  }
}

LayerPages Engine::pages(const Op &op) const {
  return {pool_,
          step_->page_table + static_cast<int64_t>(op.group) * step_->num_seqs * step_->max_pages * 2,
          step_->max_pages,
          op.group_layer,
          plan_.shape.num_heads,
          plan_.shape.num_kv_heads,
          plan_.shape.head_dim};
}

// One out-of-place copy a move, this layer's part of the extent only, before anything is appended.
void Engine::move_pages(const Op &op, Counter &counter) {
  if (step_->num_moves == 0) return;
  int32_t begin, end;
  while (counter.take(step_->num_moves, 1, &begin, &end)) {
    const int32_t *move = step_->page_moves + begin * 4;
    if (move[0] != op.group) continue;
    const int64_t source =
        static_cast<int64_t>(move[2] & OFFSET_MASK) * OFFSET_UNIT + op.group_layer * plan_.shape.layer_bytes();
    const int64_t target =
        static_cast<int64_t>(move[3] & OFFSET_MASK) * OFFSET_UNIT + op.group_layer * plan_.shape.layer_bytes();
    // Not memcpy: the two extents of a move are whatever its caller says, and may overlap.
    std::memmove(pool_ + target, pool_ + source, static_cast<size_t>(plan_.shape.layer_bytes()));
  }
  team_.barrier();
}

void Engine::attend(const Op &op, Counter *counters, int thread) {
  move_pages(op, counters[0]);
  const int64_t qkv_width = plan_.shape.qkv_width();
  const int64_t out_width = plan_.shape.query_width();
  const int64_t table = std::find(plan_.rotaries.begin(), plan_.rotaries.end(), op.inv_freq) - plan_.rotaries.begin();
  const int64_t angles = table * limits_.max_step_tokens * (plan_.shape.head_dim / 2);
  RotaryParams rotary{};
  rotary.pages = pages(op);
  rotary.qkv = space_.qkv;
  rotary.qkv_stride = qkv_width;
  rotary.row_seq = space_.row_seq;
  rotary.row_pos = space_.row_pos;
  rotary.cosines = space_.cosines + angles;
  rotary.sines = space_.sines + angles;
  rotary.q_norm = op.q_norm == NO_TENSOR ? nullptr : plan_.vectors[op.q_norm];
  rotary.k_norm = op.k_norm == NO_TENSOR ? nullptr : plan_.vectors[op.k_norm];
  rotary.epsilon = op.epsilon;
  rotary.scale = op.scale;
  // Attention multiplies integers, in which a NaN would not show. K and V are looked at before they go into their pages, q as
  // attention reads it: its norm and the angles, which K shares, show there.
  const bool is_k_norm_good = !rotary.k_norm || are_below(INFINITE, rotary.k_norm, plan_.shape.head_dim);
  while (counters[1].take(step_->num_tokens, 8, &rotary.row_begin, &rotary.row_end)) {
    const auto check_rows = [&](float bound, int64_t begin, int64_t end) {
      for (int32_t row = rotary.row_begin; row < rotary.row_end; ++row) {
        if (is_k_norm_good && are_below(bound, space_.qkv + row * qkv_width + begin, end - begin)) continue;
        std::atomic_ref(step_->not_finite[space_.row_seq[row]]).store(1, std::memory_order_relaxed);
      }
    };
    check_rows(INFINITE, out_width, qkv_width);
    kernels_->rotary(rotary);
    check_rows(TOO_LARGE, 0, out_width);
  }
  team_.barrier();

  AttendParams params{};
  params.pages = rotary.pages;
  params.qkv = space_.qkv;
  params.qkv_stride = qkv_width;
  params.out = space_.attention;
  params.out_stride = out_width;
  params.row_pos = space_.row_pos;
  params.window = op.window;
  params.soft_cap = op.soft_cap;
  params.scratch = space_.scratch + thread * scratch_stride(plan_.shape.head_dim);
  const GroupTasks &tasks = tasks_[op.group];
  int32_t begin, end;
  while (counters[2].take(static_cast<int32_t>(tasks.attend.size()), 1, &begin, &end)) {
    const AttendTask &task = tasks.attend[begin];
    params.seq = task.seq;
    params.kv_head = task.kv_head;
    params.token_begin = task.token_begin;
    params.token_end = task.token_end;
    params.block_begin = task.block_begin;
    params.block_end = task.block_end;
    params.partials = task.partials < 0 ? nullptr : space_.partials + task.partials;
    kernels_->attend(params);
  }
  if (tasks.merge.empty()) return;
  team_.barrier();
  while (counters[3].take(static_cast<int32_t>(tasks.merge.size()), 1, &begin, &end)) {
    const MergeTask &task = tasks.merge[begin];
    kernels_->merge({space_.partials + task.partials, task.blocks, plan_.shape.head_dim, plan_.shape.num_heads,
                     plan_.shape.num_kv_heads, task.kv_head, space_.attention, out_width, task.token_begin, task.token_end});
  }
}

}  // namespace edge
