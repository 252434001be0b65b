#include "step.h"

#include <algorithm>

#include "sizes.h"
#include "workspace.h"

namespace edge {
namespace {

bool in_pool(const Plan &plan, int64_t pool_bytes, int32_t word, int32_t group, int32_t side) {
  return offset_of(word) + plan.group_layers[group] * plan.shape.layer_bytes(side, format_of(word)) <= pool_bytes;
}

// Whether a word that is not negative has a format that heads of this model can be kept in.
bool is_held(const Plan &plan, int32_t word, int32_t side) {
  return format_of(word) <= PageFormat::int2 && can_hold(side, format_of(word), plan.shape.head_dim);
}

Status check_move(const Plan &plan, int64_t pool_bytes, const int32_t *move, int32_t where) {
  const int32_t group = move[0], side = move[1];
  if (group < 0 || group >= plan.shape.num_groups || (side != 0 && side != 1)) return {"a page move names no extent", where};
  for (const int32_t word : {move[2], move[3]}) {
    if (word < 0) return {"a page move names no extent", where};
    if (!is_held(plan, word, side)) return {"a page move has a format that this model's heads cannot be kept in", where};
    if (!in_pool(plan, pool_bytes, word, group, side)) return {"a page move lies outside the pool", where};
  }
  if (!(MOVE_TARGETS[format_of(move[2])] >> format_of(move[3]) & 1))
    return {"a page move between formats that no kernel converts", where};
  return {};
}

Status check_pages(const Plan &plan, int64_t pool_bytes, const Step &step, int32_t seq) {
  const Span rows = span_of(step, seq);
  for (int32_t group = 0; group < plan.shape.num_groups; ++group) {
    const int32_t *table = step.page_table + (static_cast<int64_t>(group) * step.num_seqs + seq) * step.max_pages * 2;
    const int32_t first = first_visible(rows.first_position, plan.windows[group]) / PAGE_TOKENS;
    for (int32_t page = first; page <= (step.kv_len[seq] - 1) / PAGE_TOKENS; ++page) {
      for (int32_t side = 0; side < 2; ++side) {
        const int32_t word = table[page * 2 + side];
        if (word < 0) return {"a page that a sequence reads is missing", seq};
        if (!is_held(plan, word, side)) return {"a page has a format that this model's heads cannot be kept in", seq};
        if (page >= rows.first_position / PAGE_TOKENS && format_of(word) != PageFormat::fp16)
          return {"a page that a sequence writes is not fp16", seq};
        if (!in_pool(plan, pool_bytes, word, group, side)) return {"a page lies outside the pool", seq};
      }
    }
  }
  return {};
}

}  // namespace

Span span_of(const Step &step, int32_t seq) {
  const int32_t begin = step.query_start[seq], end = step.query_start[seq + 1];
  return {begin, end, step.kv_len[seq] - (end - begin)};
}

Status check_step(const Plan &plan, const Limits &limits, int64_t pool_bytes, const Step &step) {
  const bool moves_alone = step.num_seqs == 0 && step.num_moves > 0;
  if ((step.num_tokens <= 0 && !moves_alone) || step.num_tokens > limits.max_step_tokens)
    return {"a step has no tokens or more than the limit", -1};
  if ((step.num_seqs <= 0 && !moves_alone) || step.num_seqs > limits.max_sequences)
    return {"a step has no sequences or more than the limit", -1};
  if (step.num_logit_rows > limits.max_logit_rows) return {"a step asks for more logit rows than the limit", -1};
  if (step.query_start[0] != 0 || step.query_start[step.num_seqs] != step.num_tokens)
    return {"query_start does not cover the step", -1};
  for (int32_t i = 0; i < step.num_tokens; ++i) {
    if (step.token_ids[i] < 0 || step.token_ids[i] >= plan.shape.vocab_size) return {"a token id is outside the vocabulary", i};
  }
  for (int32_t i = 0; i < step.num_logit_rows; ++i) {
    if (step.logit_rows[i] < 0 || step.logit_rows[i] >= step.num_tokens) return {"a logit row is outside the step", i};
  }
  for (int32_t seq = 0; seq < step.num_seqs; ++seq) {
    if (step.query_start[seq + 1] <= step.query_start[seq]) return {"a sequence has no tokens in the step", seq};
    if (step.kv_len[seq] < 0 || step.kv_len[seq] > limits.max_context)  // first: the next sum must not wrap
      return {"a sequence is longer than the engine's context", seq};
    const Span rows = span_of(step, seq);
    if (rows.first_position < 0) return {"kv_len is shorter than the sequence's new tokens", seq};
    if (divide_up(step.kv_len[seq], PAGE_TOKENS) > step.max_pages) return {"the page table is too short for a sequence", seq};
    if (step.read_pages && step.read_pages[seq]) {
      const int32_t most = divide_up(limits.max_context, PAGE_TOKENS);
      if (step.read_pages[seq] < -most || step.read_pages[seq] > most)
        return {"read_pages of a sequence is outside of what a context has", seq};
      if (rows.row_end - rows.row_begin > 1) return {"read_pages is given to a sequence with more than one token", seq};
    }
    if (step.watch && (step.watch[seq] < 0 || step.watch[seq] > std::min(WATCH_ROWS, rows.row_end - rows.row_begin)))
      return {"more rows of a sequence are watched than it has in the step, or than the limit", seq};
    if (rows.first_position / SEAL_TOKENS != (step.kv_len[seq] - 1) / SEAL_TOKENS)
      return {"a chunk crosses a seal border", seq};
    const Status status = check_pages(plan, pool_bytes, step, seq);
    if (!status.good()) return status;
  }
  for (int32_t i = 0; i < step.num_moves; ++i) {
    const Status status = check_move(plan, pool_bytes, step.page_moves + i * 4, i);
    if (!status.good()) return status;
  }
  return {};
}

}  // namespace edge
