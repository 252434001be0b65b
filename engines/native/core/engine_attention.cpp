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

// Out of place, this layer's part of the extents only, before anything is appended.
void Engine::move_pages(const Op &op, Counter &counter) {
  if (step_->num_moves == 0) return;
  int32_t begin, end;
  while (counter.take(step_->num_moves, 1, &begin, &end)) {
    const int32_t *move = step_->page_moves + begin * 4;
    if (move[0] != op.group) continue;
    const auto part = [&](int32_t word) {
      return pool_ + offset_of(word) + op.group_layer * plan_.shape.layer_bytes(move[1], format_of(word));
    };
    kernels_->move({part(move[2]), part(move[3]), move[1], format_of(move[2]), format_of(move[3]), plan_.shape.num_kv_heads,
                    plan_.shape.head_dim});
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
  // Few rows: every task turns the queries that it reads, and the task of the newest block appends; that takes less time than a
  // barrier. Many rows are turned once, in place, and so are those that are watched.
  const bool own = step_->num_tokens <= DECODE_TOKENS && !step_->watch;
  rotary.queries = own ? space_.queries + thread * DECODE_TOKENS * out_width : space_.qkv;
  rotary.queries_stride = own ? out_width : qkv_width;
  rotary.kv_head_end = plan_.shape.num_kv_heads;
  rotary.append = 1;
  while (!own && counters[1].take(step_->num_tokens, 8, &rotary.row_begin, &rotary.row_end)) turn(rotary);
  if (!own) team_.barrier();

  AttendParams params{};
  params.qkv_stride = rotary.queries_stride;
  params.out_stride = out_width;
  params.window = op.window;
  params.soft_cap = op.soft_cap;
  params.scratch = space_.scratch + thread * scratch_stride(plan_.shape.head_dim);
  const GroupTasks &tasks = tasks_[op.group];
  if (!tasks.choices.empty()) choose(op, rotary, own, counters[3], thread);
  int32_t begin, end;
  const int32_t attends = static_cast<int32_t>(tasks.attend.size());
  params.qkv = rotary.queries;
  while (counters[2].take(attends + static_cast<int32_t>(tasks.mass.size()), 1, &begin, &end)) {
    if (begin >= attends) {
      weigh(op, tasks.mass[begin - attends], params, thread);
      continue;
    }
    const AttendTask &task = tasks.attend[begin];
    if (own) {
      rotary.row_begin = task.token_begin;
      rotary.row_end = task.token_end;
      rotary.kv_head_begin = task.kv_head;
      rotary.kv_head_end = task.kv_head + 1;
      rotary.append = task.is_last;
      rotary.queries = space_.queries + (thread * DECODE_TOKENS - task.token_begin) * out_width;
      turn(rotary);
    }
    params.pages = rotary.pages;
    params.qkv = rotary.queries;
    params.out = space_.attention;
    params.row_pos = space_.row_pos;
    params.seq = task.seq;
    if (task.choice >= 0) read_chosen(tasks.choices[task.choice], task.choice, &params);
    params.kv_head = task.kv_head;
    params.token_begin = task.token_begin;
    params.token_end = task.token_end;
    params.block_begin = task.block_begin;
    params.block_end = task.block_end;
    params.partials = task.partials < 0 ? nullptr : space_.partials + task.partials;
    kernels_->attend(params);
    if (params.partials) merge(tasks, task.merge);
  }
}

// Adds to the step's mass from every thread: whole numbers, whose sum has no order.
void Engine::weigh(const Op &op, const MassTask &task, const AttendParams &rows, int thread) {
  MassParams params{};
  params.rows = rows;
  params.rows.pages = pages(op);
  params.rows.row_pos = space_.row_pos;
  params.rows.seq = task.seq;
  params.rows.kv_head = task.kv_head;
  params.rows.token_begin = task.token_begin;
  params.rows.token_end = task.token_end;
  params.powers = space_.powers + thread * 2 * MASS_ROWS * space_.page_stride;
  params.stride = space_.page_stride;
  params.mass = step_->mass + (static_cast<int64_t>(op.group) * step_->num_seqs + task.seq) * step_->max_pages;
  kernels_->weigh_pages(params);
}

// Attention multiplies integers, in which a NaN would not show. K and V are looked at before they go into their pages, q as
// attention reads it: its norm and the angles, which K shares, show there.
void Engine::turn(const RotaryParams &p) {
  const int64_t dim = plan_.shape.head_dim, heads = plan_.shape.num_heads, kv_heads = plan_.shape.num_kv_heads;
  const int64_t group = heads / kv_heads, first = p.kv_head_begin, count = p.kv_head_end - p.kv_head_begin;
  const bool is_k_norm_good = !p.k_norm || are_below(INFINITE, p.k_norm, dim);
  const auto are_good = [&](const float *row) {
    return is_k_norm_good && are_below(INFINITE, row + (heads + first) * dim, count * dim) &&
           are_below(INFINITE, row + (heads + kv_heads + first) * dim, count * dim);
  };
  const auto check_rows = [&](auto is_good) {
    for (int32_t row = p.row_begin; row < p.row_end; ++row) {
      if (!is_good(row)) std::atomic_ref(step_->not_finite[space_.row_seq[row]]).store(1, std::memory_order_relaxed);
    }
  };
  if (p.append) check_rows([&](int32_t row) { return are_good(p.qkv + row * p.qkv_stride); });
  kernels_->rotary(p);
  check_rows([&](int32_t row) {
    return are_below(TOO_LARGE, p.queries + row * p.queries_stride + first * group * dim, count * group * dim);
  });
}

// Whoever is done with the last part merges them. What a probe has read of chosen pages goes nowhere.
void Engine::merge(const GroupTasks &tasks, int32_t index) {
  const MergeTask &task = tasks.merge[index];
  if (!is_last_of(task.parts, space_.merged[index])) return;
  if (task.choice < 0 || task.probe < 0) {
    kernels_->merge({space_.partials + task.partials, task.blocks, plan_.shape.head_dim, plan_.shape.num_heads,
                     plan_.shape.num_kv_heads, task.kv_head, space_.attention, plan_.shape.query_width(), task.token_begin,
                     task.token_end});
  }
  if (task.probe >= 0 && is_last_of(2, space_.probed[task.probe])) count_omitted(tasks, tasks.probes[task.probe]);
}

}  // namespace edge
