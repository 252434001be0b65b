// One step over packed sequences: its arrays, the check that they stay inside, the attention tasks that they make.
// Owns nothing. Needs: plan.h. Never: runs anything.
#pragma once
#include <vector>

#include "plan.h"

namespace edge {

// Arrays are the caller's (edge/executors/base.py, StepInput). Without sequences it has moves alone.
struct Step {
  const int32_t *token_ids;    // [num_tokens]
  const int32_t *query_start;  // [num_seqs + 1]
  const int32_t *kv_len;       // [num_seqs], the state after this step
  const int32_t *page_table;   // [groups][num_seqs][max_pages][2]
  const int32_t *page_moves;   // [num_moves][4]
  const int32_t *logit_rows;   // [num_logit_rows]
  float *logits;               // [num_logit_rows][vocab_size]
  int32_t *not_finite;         // [num_seqs], written: 1 for a sequence whose numbers are not finite, 0 for the others
  int32_t num_tokens, num_seqs, max_pages, num_moves, num_logit_rows;
};

// A sequence's rows in a step.
struct Span {
  int32_t row_begin, row_end, first_position;
};
Span span_of(const Step &step, int32_t seq);

// Query rows of one kv head that one thread attends at a time.
struct AttendTask {
  int32_t seq, kv_head, token_begin, token_end, block_begin, block_end;
  int64_t partials;  // float offset, or -1: merged where it is computed
  int32_t merge;     // index of its MergeTask, with partials
  bool is_last;      // whether it has the block of the rows themselves: their K and V are appended there
};
struct MergeTask {
  int32_t kv_head, token_begin, token_end, blocks, parts;  // parts: attention tasks that it merges
  int64_t partials;
};
struct GroupTasks {
  std::vector<AttendTask> attend;  // the longest first
  std::vector<MergeTask> merge;
};

// Whether every index, position and page of the step lies where it may.
Status check_step(const Plan &plan, const Limits &limits, int64_t pool_bytes, const Step &step);

// Attention of one layer group, cut for `threads` threads. The cut never changes a bit of the result.
void plan_attention(const Plan &plan, const Step &step, int32_t group, int threads, GroupTasks *tasks);

}  // namespace edge
