// The attention of a step cut into tasks. The cut never changes a bit of the result.
#include <algorithm>
#include <cstdlib>

#include "page_choice.h"
#include "sizes.h"
#include "step.h"
#include "workspace.h"

namespace edge {
namespace {

constexpr int TASKS_A_THREAD = 3;  // pieces of attention a thread and sequence: even, and long enough for prefetch
constexpr int32_t MIN_TOKEN_TILE = 16, MAX_TOKEN_TILE = 64;  // prefill tokens of one kv head attended at a time
constexpr int32_t MIN_SCORED_PAGES = 64;                     // by one task: some microseconds

// Cuts the attention of one layer group.
class Cutter {
 public:
  Cutter(const Plan &plan, const Step &step, int32_t group, int threads, GroupTasks *tasks)
      : plan_(plan), step_(step), group_(group), shares_(TASKS_A_THREAD * threads), tasks_(tasks) {}

  void cut(int32_t seq) {
    const Span rows = span_of(step_, seq);
    const int32_t count = rows.row_end - rows.row_begin, kv_heads = plan_.shape.num_kv_heads;
    const int32_t window = plan_.windows[group_], left_out = pages_left_out(seq);
    // With one row a sequence there is room for partials; more rows only where the sequence is alone.
    const bool split = count == 1 || (step_.num_seqs == 1 && count <= DECODE_TOKENS);
    const int32_t tile = split ? count : std::clamp(count * kv_heads / shares_, MIN_TOKEN_TILE, MAX_TOKEN_TILE);
    for (int32_t begin = 0; begin < count; begin += tile) {
      const int32_t end = std::min(begin + tile, count);
      const int32_t first = first_visible(rows.first_position + begin, window) / BLOCK_TOKENS;
      const int32_t last = (rows.first_position + end - 1) / BLOCK_TOKENS + 1;
      for (int32_t head = 0; head < kv_heads; ++head) {
        AttendTask task{seq, head, rows.row_begin + begin, rows.row_begin + end, first, last, -1, -1, true, -1};
        if (!split) {
          tasks_->attend.push_back(task);
        } else if (left_out) {
          cut_choice(task, left_out);
        } else {
          cut_blocks(task, -1);
        }
      }
    }
  }

  // In pieces for which a page of K is unpacked once.
  void watch(int32_t seq) {
    if (!step_.watch || !step_.watch[seq]) return;
    const Span rows = span_of(step_, seq);
    const int32_t tile = std::max(1, MASS_ROWS / (plan_.shape.num_heads / plan_.shape.num_kv_heads));
    for (int32_t begin = rows.row_end - step_.watch[seq]; begin < rows.row_end; begin += tile) {
      for (int32_t head = 0; head < plan_.shape.num_kv_heads; ++head) {
        tasks_->mass.push_back({seq, head, begin, std::min(begin + tile, rows.row_end)});
      }
    }
  }

 private:
  // Pages that read_pages leaves out, the same number in every layer; 0: all are read.
  int32_t pages_left_out(int32_t seq) const {
    if (!step_.read_pages || !step_.read_pages[seq] || plan_.windows[group_]) return 0;
    return std::max(0, count_optional(table_of(seq), pages_of(seq)) - std::abs(step_.read_pages[seq]));
  }

  // A decode row whose heads read chosen pages; a probe reads all pages, and the chosen ones to compare.
  //
  // The heads of a kv head choose together, by the sum of what each would give. Each for itself is better at equal pages but
  // unpacks them for one row at a time. SmolLM2-135M at 8,192 tokens (3 heads) with AVX2: 63 pages together 8.9 ms a token, KL
  // 0.016; 127 together 10.4 ms, 0.007; 31 apart 9.5 ms, 0.020; 63 apart 10.7 ms, 0.008; all 12.1 ms.
  void cut_choice(AttendTask task, int32_t left_out) {
    const int32_t pages = pages_of(task.seq), chosen = pages - left_out, read = step_.read_pages[task.seq];
    const int32_t position = (chosen - 1) * PAGE_TOKENS + (step_.kv_len[task.seq] - 1) % PAGE_TOKENS;
    const int32_t kv_heads = plan_.shape.num_kv_heads * step_.num_seqs;
    const int32_t run = std::max(MIN_SCORED_PAGES, divide_up(pages * kv_heads, shares_));
    const int32_t merge = static_cast<int32_t>(tasks_->merge.size()), choice = static_cast<int32_t>(tasks_->choices.size());
    tasks_->choices.push_back(
        {task.seq, task.kv_head, task.token_begin, pages, std::abs(read), position, divide_up(pages, run)});
    for (int32_t page = 0; page < pages; page += run) {
      tasks_->score.push_back({choice, page, std::min(page + run, pages), page == 0});
    }
    int32_t probe = -1;
    task.is_last = false;  // the first of the score tasks appends
    if (read < 0) {
      probe = static_cast<int32_t>(tasks_->probes.size());
      tasks_->probes.push_back({merge, merge + 1});
      cut_blocks(task, probe);
    }
    task.choice = choice;
    task.block_begin = 0;
    task.block_end = divide_up(chosen, BLOCK_TOKENS / PAGE_TOKENS);
    cut_blocks(task, probe);
  }

  // Tasks of a few blocks each, which leave partials, and their merge.
  void cut_blocks(AttendTask task, int32_t probe) {
    const ModelShape &shape = plan_.shape;
    const int32_t first = task.block_begin, last = task.block_end, count = task.token_end - task.token_begin;
    // Neighbouring blocks together: inside a task the kernel fetches one block ahead.
    const int32_t run = std::max(1, (last - first) * shape.num_kv_heads * step_.num_seqs / shares_);
    const int64_t block_floats = static_cast<int64_t>(count) * (shape.num_heads / shape.num_kv_heads) * (2 + shape.head_dim);
    const bool appends = task.is_last;
    task.merge = static_cast<int32_t>(tasks_->merge.size());
    tasks_->merge.push_back({task.kv_head, task.token_begin, task.token_end, last - first, divide_up(last - first, run),
                             partials_, task.choice, probe});
    for (int32_t block = first; block < last; block += run) {
      task.block_begin = block;
      task.block_end = std::min(block + run, last);
      task.is_last = appends && task.block_end == last;
      task.partials = partials_ + (block - first) * block_floats;
      tasks_->attend.push_back(task);
    }
    partials_ += (last - first) * block_floats;
  }

  const int32_t *table_of(int32_t seq) const {
    return step_.page_table + (static_cast<int64_t>(group_) * step_.num_seqs + seq) * step_.max_pages * 2;
  }
  int32_t pages_of(int32_t seq) const { return divide_up(step_.kv_len[seq], PAGE_TOKENS); }

  const Plan &plan_;
  const Step &step_;
  const int32_t group_, shares_;
  GroupTasks *const tasks_;
  int64_t partials_ = 0;
};

}  // namespace

void plan_attention(const Plan &plan, const Step &step, int32_t group, int threads, GroupTasks *tasks) {
  tasks->attend.clear();
  tasks->merge.clear();
  tasks->choices.clear();
  tasks->score.clear();
  tasks->probes.clear();
  tasks->mass.clear();
  Cutter cutter(plan, step, group, threads, tasks);
  for (int32_t seq = 0; seq < step.num_seqs; ++seq) {
    cutter.cut(seq);
    cutter.watch(seq);
  }
  // The longest first: later chunks see more blocks, and the last task should be a short one.
  std::stable_sort(tasks->attend.begin(), tasks->attend.end(), [](const AttendTask &a, const AttendTask &b) {
    return a.block_end - a.block_begin > b.block_end - b.block_begin;
  });
}

}  // namespace edge
