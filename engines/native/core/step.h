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
  // [num_seqs], or null: all read all pages. n > 0: the sequence's one row reads, in layers without a window, no more than n of
  // the pages whose K is sealed (page_choice.h); n < 0: it reads all, and `omitted` tells what n pages would have left out.
  const int32_t *read_pages;
  // [num_seqs], or null: nobody's rows are watched. The last watch[b] rows of sequence b, WATCH_ROWS at most.
  const int32_t *watch;
  float *logits;        // [num_logit_rows][vocab_size]
  int32_t *not_finite;  // [num_seqs], written: 1 for a sequence whose numbers are not finite, 0 for the others
  float *omitted;       // [num_seqs], written with read_pages: share of the softmax, mean over layers without a window and
                        // heads; 0 where it was not asked for
  int64_t *mass;  // [groups][num_seqs][max_pages], written with watch: what the watched rows give to each page (contract.h,
                  // MASS_STEPS)
  int32_t num_tokens, num_seqs, max_pages, num_moves, num_logit_rows;
};

// A sequence's rows in a step.
struct Span {
  int32_t row_begin, row_end, first_position;
};
Span span_of(const Step &step, int32_t seq);
inline int32_t first_visible(int32_t position, int32_t window) {
  return window && position >= window ? position - window + 1 : 0;
}

// Query rows of one kv head that one thread attends at a time.
struct AttendTask {
  int32_t seq, kv_head, token_begin, token_end, block_begin, block_end;
  int64_t partials;  // float offset, or -1: merged where it is computed
  int32_t merge;     // index of its MergeTask, with partials
  bool is_last;      // whether it has the block of the rows themselves and appends their K and V
  int32_t choice;    // index of the Choice whose pages it reads, blocks being counted among them; -1: all pages
};
struct MergeTask {
  int32_t kv_head, token_begin, token_end, blocks, parts;  // parts: attention tasks that it merges
  int64_t partials;
  int32_t choice;  // index of the Choice that was read; -1: all pages
  int32_t probe;   // index of the Probe that it belongs to; -1: none
};

// Pages that the query heads of a kv head choose together for one decode row, in each layer anew; how many is known before.
struct Choice {
  int32_t seq, kv_head, row;
  int32_t pages, read;  // of the sequence, and of those that may be left out
  int32_t position;     // of the row among the chosen pages
  int32_t parts;        // ScoreTasks
};
struct ScoreTask {
  int32_t choice, page_begin, page_end;
  bool is_first;  // whether it appends the row's K and V
};
// What a choice would leave out of a row that reads all: indices of the MergeTasks of all pages and of those chosen.
struct Probe {
  int32_t all, read;
};
// Watched rows of one kv head, MASS_ROWS at most where a token has no more.
struct MassTask {
  int32_t seq, kv_head, token_begin, token_end;
};
struct GroupTasks {
  std::vector<AttendTask> attend;  // the longest first
  std::vector<MergeTask> merge;
  std::vector<Choice> choices;
  std::vector<ScoreTask> score;
  std::vector<Probe> probes;
  std::vector<MassTask> mass;
};

// Whether every index, position and page of the step lies where it may.
Status check_step(const Plan &plan, const Limits &limits, int64_t pool_bytes, const Step &step);

// Attention of one layer group, cut for `threads` threads. The cut never changes a bit of the result.
void plan_attention(const Plan &plan, const Step &step, int32_t group, int threads, GroupTasks *tasks);

}  // namespace edge
