// Rows of a decode step that do not read all pages: their choice in each layer, and what it leaves out.
#include "engine.h"
#include "page_choice.h"

namespace edge {

void Engine::choose(const Op &op, RotaryParams rotary, bool own, Counter &counter, int thread) {
  const GroupTasks &tasks = tasks_[op.group];
  const ModelShape &shape = plan_.shape;
  const int32_t heads = shape.num_heads / shape.num_kv_heads;
  const int64_t stride = space_.page_stride;
  int32_t begin, end;
  while (counter.take(static_cast<int32_t>(tasks.score.size()), 1, &begin, &end)) {
    const ScoreTask &task = tasks.score[begin];
    const Choice &choice = tasks.choices[task.choice];
    const int64_t head = int64_t{choice.kv_head} * heads;
    if (own) {
      rotary.row_begin = choice.row;
      rotary.row_end = choice.row + 1;
      rotary.kv_head_begin = choice.kv_head;
      rotary.kv_head_end = choice.kv_head + 1;
      rotary.append = task.is_first;
      rotary.queries = space_.queries + (thread * DECODE_TOKENS - choice.row) * rotary.queries_stride;
      turn(rotary);
    }
    PageScoreParams params{};
    params.pages = rotary.pages;
    params.queries = rotary.queries + choice.row * rotary.queries_stride + head * shape.head_dim;
    params.heads = heads;
    params.seq = choice.seq;
    params.kv_head = choice.kv_head;
    params.page_begin = task.page_begin;
    params.page_end = task.page_end;
    params.scores = space_.page_scores + (int64_t{choice.seq} * shape.num_heads + head) * stride;
    params.stride = stride;
    kernels_->score_pages(params);
    if (!is_last_of(choice.parts, space_.scored[task.choice])) continue;
    float *ranks = space_.ranks + thread * stride;
    kernels_->rank({params.scores, stride, heads, choice.pages, op.soft_cap, ranks});
    choose_pages(params.pages.page_table + int64_t{choice.seq} * step_->max_pages * 2, choice.pages, choice.read, ranks,
                 space_.keys + thread * stride, space_.chosen + task.choice * stride * 2);
  }
  team_.barrier();
}

void Engine::read_chosen(const Choice &choice, int32_t index, AttendParams *params) const {
  params->pages.page_table = space_.chosen + index * space_.page_stride * 2;
  params->pages.max_pages = static_cast<int32_t>(space_.page_stride);
  params->row_pos = &choice.position - choice.row;
  params->seq = 0;
}

// By one thread a sequence and kv head, layer behind layer: a sum in one order.
void Engine::count_omitted(const GroupTasks &tasks, const Probe &probe) {
  const MergeTask &all = tasks.merge[probe.all], &read = tasks.merge[probe.read];
  const int32_t heads = plan_.shape.num_heads / plan_.shape.num_kv_heads, dim = plan_.shape.head_dim;
  float *omitted = space_.omitted + int64_t{space_.row_seq[all.token_begin]} * plan_.shape.num_heads + all.kv_head * heads;
  for (int32_t i = 0; i < heads; ++i) {
    omitted[i] += omitted_share(mass_of_row(space_.partials + read.partials, read.blocks, heads, i, dim),
                                mass_of_row(space_.partials + all.partials, all.blocks, heads, i, dim));
  }
}

// The mean over layers without a window and heads, in one order.
void Engine::write_omitted() {
  int32_t layers = 0;
  for (int32_t group = 0; group < plan_.shape.num_groups; ++group) {
    if (plan_.windows[group] == 0) layers += plan_.group_layers[group];
  }
  const int32_t heads = plan_.shape.num_heads;
  for (int32_t seq = 0; seq < step_->num_seqs; ++seq) {
    float sum = 0.0f;
    for (int32_t head = 0; head < heads; ++head) sum += space_.omitted[int64_t{seq} * heads + head];
    step_->omitted[seq] = layers ? sum / static_cast<float>(layers * heads) : 0.0f;
  }
}

}  // namespace edge
