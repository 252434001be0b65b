// Memory that a step works in. Owns: its layout. Needs: plan.h. Never: what is computed.
#pragma once
#include <atomic>

#include "plan.h"

namespace edge {

// Rows up to which a sequence that is alone in a step shares its attention blocks out over threads, through partials.
constexpr int32_t DECODE_TOKENS = 8;

// Rows up to which every thread prepares the inputs of a product for itself: that takes less time than a barrier.
constexpr int32_t OWN_ROWS = 2;

// Inputs of a product, in the forms that its weights want.
struct InputRows {
  Rows quantised;
  float *plain;  // fp32 rows for fp16 weights; null where the plan has none
};

struct Workspace {
  float *hidden, *qkv, *attention, *feed_forward, *extra;
  InputRows shared;
  InputRows own;  // OWN_ROWS rows a thread, one thread's behind the other's
  int64_t plain_stride;
  float *cosines, *sines;  // [distinct inv_freq][max_step_tokens][head_dim / 2]
  int32_t *row_seq, *row_pos;
  float *partials, *scratch;
  float *queries;  // [threads][DECODE_TOKENS][Hq * D]: rotated q of the attention task that a thread is at, of few rows
  // Of choices, at most one a sequence and kv head: scores [max_sequences][Hq][page_stride], page-table words [choices]
  // [page_stride][2], score tasks that are done; of threads: ranks and keys [threads][page_stride].
  float *page_scores, *ranks;
  float *powers;  // [threads][2][MASS_ROWS][page_stride]: what the rows of a mass task give to pages
  int32_t *chosen;
  uint64_t *keys;
  std::atomic<int32_t> *scored;
  std::atomic<int32_t> *probed;  // merges of a probe that are done; 0 between ops
  float *omitted;                // [max_sequences][Hq], summed over the layers of a step
  int64_t page_stride;
  std::atomic<int32_t> *merged;  // [2 * max_sequences * Hkv]: attention tasks that are done, by merge task; 0 between ops
  int64_t bytes;
};

// Places everything one behind another from `base` on, which may be null to count bytes only.
Workspace lay_out(uint8_t *base, const std::vector<TensorRecord> &tensors, const std::vector<Op> &ops, const ModelShape &shape,
                  const Limits &limits, int threads);

// Floats from one thread's scratch to the next.
int64_t scratch_stride(int32_t head_dim);

}  // namespace edge
