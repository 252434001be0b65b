#include "engine.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace edge {
namespace {

constexpr int PHASES = 4;          // counters an op may use
constexpr int DECODE_TOKENS = 8;   // up to here a sequence's rows share out their blocks over threads, through partials
constexpr int TASKS_A_THREAD = 3;  // pieces of attention a thread and sequence: even, and long enough for prefetch
constexpr int32_t MIN_TOKEN_TILE = 16, MAX_TOKEN_TILE = 64;  // prefill tokens of one kv head attended at a time
constexpr int PREFILL_CHUNKS = 2;  // pieces of a matrix a thread with many rows: what a slow core leaves, others take

// Strips that a thread takes at once. With few rows memory is the limit, and one long stream a thread reads up to 40 % faster
// than several pieces (kernels_bench).
int32_t strip_chunk(int32_t strips, int32_t rows, int32_t threads) {
  return std::max(1, (strips + threads - 1) / threads / (rows <= DECODE_TOKENS ? 1 : PREFILL_CHUNKS));
}

int64_t align_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }
int32_t divide_up(int32_t value, int32_t by) { return (value + by - 1) / by; }

// A sequence's rows in the step under way.
struct Span {
  int32_t row_begin, row_end, first_position;
};

Span span(const Step &step, int32_t seq) {
  const int32_t begin = step.query_start[seq], end = step.query_start[seq + 1];
  return {begin, end, step.kv_len[seq] - (end - begin)};
}

int32_t first_visible(int32_t position, int32_t window) { return window && position >= window ? position - window + 1 : 0; }

// Lays out a workspace; with a null base it only counts.
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

std::vector<int32_t> distinct_rotaries(const std::vector<Op> &ops) {
  std::vector<int32_t> found;
  for (const Op &op : ops) {
    if (op.code == OpCode::attend && std::find(found.begin(), found.end(), op.inv_freq) == found.end()) {
      found.push_back(op.inv_freq);
    }
  }
  return found;
}

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
  const int64_t blocks = divide_up(limits.max_context, BLOCK_TOKENS);
  Layout layout(base);
  Workspace space{};
  space.hidden = layout.take<float>(tokens * shape.hidden_size);
  space.qkv = layout.take<float>(tokens * (heads + 2 * shape.num_kv_heads) * dim);
  space.attention = layout.take<float>(tokens * heads * dim);
  space.feed_forward = layout.take<float>(tokens * shape.intermediate_size);
  space.extra = layout.take<float>(tokens * shape.hidden_size);
  space.logit_hidden = layout.take<float>(static_cast<int64_t>(limits.max_logit_rows) * shape.hidden_size);
  space.rows.quants = layout.take<int8_t>(rows * widest);
  space.rows.scales = layout.take<float>(rows * widest / 32);
  space.rows.sums = layout.take<float>(rows * widest / 16);
  space.rows.isums = layout.take<int32_t>(rows * widest / 16);
  if (plain) space.plain = layout.take<float>(rows * widest);
  space.plain_stride = widest;
  const int64_t rotary = static_cast<int64_t>(distinct_rotaries(ops).size()) * tokens * dim / 2;
  space.cosines = layout.take<float>(rotary);
  space.sines = layout.take<float>(rotary);
  space.row_seq = layout.take<int32_t>(tokens);
  space.row_pos = layout.take<int32_t>(tokens);
  // DECODE_TOKENS rows of one sequence, or one row of each: whichever step has more partials.
  space.partials = layout.take<float>(std::max(DECODE_TOKENS, limits.max_sequences) * heads * blocks * (2 + dim));
  space.scratch = layout.take<float>(threads * align_up(attend_scratch_floats(shape.head_dim), 16));
  space.bytes = layout.bytes();
  return space;
}

}  // namespace

Weight weight_geometry(const TensorRecord &record) {
  Weight weight{};
  weight.kind = record.kind;
  weight.outputs = record.outputs;
  weight.inputs = static_cast<int32_t>(align_up(record.inputs, STEP));
  weight.group = record.group;
  const int64_t inputs = weight.inputs;
  if (record.kind == WeightKind::fp16) {
    weight.strip_bytes = inputs * STRIP * 2;
    return weight;
  }
  const int64_t quants = record.kind == WeightKind::int4 ? inputs * STRIP / 2 : inputs * STRIP;
  const int64_t section = align_up(inputs / record.group * STRIP * 2, ALIGN);
  weight.scales_offset = align_up(quants, ALIGN);
  weight.minima_offset = record.minima ? weight.scales_offset + section : 0;
  weight.strip_bytes = weight.scales_offset + section * (record.minima ? 2 : 1);
  return weight;
}

int64_t tensor_bytes(const TensorRecord &record) {
  if (record.kind == WeightKind::fp32) return static_cast<int64_t>(record.outputs) * 4;
  return weight_geometry(record).strip_bytes * divide_up(record.outputs, STRIP);
}

Engine::Engine(const ModelShape &shape, const Limits &limits, const Kernels *kernels, int threads)
    : shape_(shape), limits_(limits), kernels_(kernels), team_(threads) {}

Engine::~Engine() { std::free(block_); }

int64_t Engine::workspace_bytes(const std::vector<TensorRecord> &tensors, const std::vector<Op> &ops, const ModelShape &shape,
                                const Limits &limits, int threads) {
  return lay_out(nullptr, tensors, ops, shape, limits, threads).bytes;
}

Status Engine::open(const uint8_t *weights, int64_t weight_bytes, const std::vector<TensorRecord> &tensors,
                    const std::vector<Op> &ops, const ModelShape &shape, const Limits &limits, const Kernels *kernels,
                    int threads, uint8_t *pool, int64_t pool_bytes, std::unique_ptr<Engine> *out) {
  std::unique_ptr<Engine> engine(new Engine(shape, limits, kernels, threads));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorRecord &tensor = tensors[i];
    const int where = static_cast<int>(i);
    const bool matrix = tensor.kind != WeightKind::fp32;
    if (tensor.kind < 0 || tensor.kind > WeightKind::int4) return {"a tensor has an unknown kind", where};
    if (tensor.outputs <= 0 || tensor.inputs <= 0) return {"a tensor has an empty shape", where};
    if (tensor.kind >= WeightKind::int8 && tensor.group != 16 && tensor.group != 32)
      return {"a tensor has an unknown group", where};
    if (tensor.kind == WeightKind::int4 && tensor.group != 32) return {"an int4 tensor has a group other than 32", where};
    if (tensor.offset < 0 || tensor.offset % WEIGHT_ALIGN || tensor.bytes != tensor_bytes(tensor) ||
        tensor.offset > weight_bytes - tensor.bytes) {
      return {"a tensor lies outside the weight file or has another size than its shape", where};
    }
    Weight weight = matrix ? weight_geometry(tensor) : Weight{};
    weight.data = matrix ? weights + tensor.offset : nullptr;
    engine->weights_.push_back(weight);
    engine->vectors_.push_back(matrix ? nullptr : reinterpret_cast<const float *>(weights + tensor.offset));
  }

  const int32_t hidden = shape.hidden_size, query = shape.num_heads * shape.head_dim;
  const int32_t qkv = query + 2 * shape.num_kv_heads * shape.head_dim;
  const auto matrix = [&](int32_t index, int32_t outputs, int32_t inputs) {
    return index >= 0 && index < static_cast<int32_t>(tensors.size()) && engine->weights_[index].data &&
           (outputs == 0 || tensors[index].outputs == outputs) && tensors[index].inputs == inputs;
  };
  const auto vector = [&](int32_t index, int32_t size, bool needed) {
    if (index == NO_TENSOR) return !needed;
    return index >= 0 && index < static_cast<int32_t>(tensors.size()) && engine->vectors_[index] &&
           tensors[index].outputs == size;
  };
  engine->layer_bytes_ = static_cast<int64_t>(shape.num_kv_heads) * shape.head_dim * PAGE_TOKENS * 2;
  engine->windows_.assign(shape.num_groups, 0);
  engine->group_layers_.assign(shape.num_groups, 0);
  for (size_t i = 0; i < ops.size(); ++i) {
    const Op &op = ops[i];
    bool good = false;
    switch (op.code) {
      case OpCode::embed: good = matrix(op.weight0, shape.vocab_size, hidden); break;
      case OpCode::project: {
        int64_t outputs = 0;
        good = vector(op.norm, hidden, true);
        for (const int32_t index : {op.weight0, op.weight1, op.weight2}) {
          if (index == NO_TENSOR) continue;
          good = good && matrix(index, 0, hidden);
          if (good) outputs += tensors[index].outputs;
        }
        good = good && outputs == qkv;
        break;
      }
      case OpCode::attend:
        good = vector(op.inv_freq, shape.head_dim / 2, true) && vector(op.q_norm, shape.head_dim, false) &&
               vector(op.k_norm, shape.head_dim, false) && op.group >= 0 && op.group < shape.num_groups &&
               op.group_layer >= 0 && op.window >= 0;
        if (good) {
          engine->windows_[op.group] = op.window;
          engine->group_layers_[op.group] = std::max(engine->group_layers_[op.group], op.group_layer + 1);
        }
        break;
      case OpCode::add:
        good = (op.input == Input::attention && matrix(op.weight0, hidden, query)) ||
               (op.input == Input::feed_forward && matrix(op.weight0, hidden, shape.intermediate_size));
        good = good && vector(op.post_norm, hidden, false);
        break;
      case OpCode::gated:
        good = vector(op.norm, hidden, true) && matrix(op.weight0, shape.intermediate_size, hidden) &&
               matrix(op.weight1, shape.intermediate_size, hidden) &&
               (op.activation == Activation::silu || op.activation == Activation::gelu_tanh);
        break;
      case OpCode::head: good = vector(op.norm, hidden, true) && matrix(op.weight0, shape.vocab_size, hidden); break;
      default: return {"a step has an unknown code", static_cast<int>(i)};
    }
    if (!good) return {"a step does not fit the model's shapes", static_cast<int>(i)};
  }

  engine->ops_ = ops;
  engine->rotaries_ = distinct_rotaries(ops);
  engine->pool_ = pool;
  engine->pool_bytes_ = pool_bytes;
  engine->tasks_.resize(shape.num_groups);
  engine->counters_.reset(new Counter[(ops.size() + 1) * PHASES]);
  const int64_t bytes = workspace_bytes(tensors, ops, shape, limits, threads);
  if (posix_memalign(&engine->block_, 4096, static_cast<size_t>(align_up(bytes, 4096)))) {
    engine->block_ = nullptr;
    return {"the workspace could not be allocated", -1};
  }
  std::memset(engine->block_, 0, static_cast<size_t>(bytes));
  engine->space_ = lay_out(static_cast<uint8_t *>(engine->block_), tensors, ops, shape, limits, threads);
  *out = std::move(engine);
  return {};
}

Status Engine::check(const Step &step) const {
  if (step.num_tokens <= 0 || step.num_tokens > limits_.max_step_tokens)
    return {"a step has no tokens or more than the limit", -1};
  if (step.num_seqs <= 0 || step.num_seqs > limits_.max_sequences)
    return {"a step has no sequences or more than the limit", -1};
  if (step.num_logit_rows > limits_.max_logit_rows) return {"a step asks for more logit rows than the limit", -1};
  if (step.query_start[0] != 0 || step.query_start[step.num_seqs] != step.num_tokens)
    return {"query_start does not cover the step", -1};
  for (int32_t i = 0; i < step.num_tokens; ++i) {
    if (step.token_ids[i] < 0 || step.token_ids[i] >= shape_.vocab_size) return {"a token id is outside the vocabulary", i};
  }
  for (int32_t i = 0; i < step.num_logit_rows; ++i) {
    if (step.logit_rows[i] < 0 || step.logit_rows[i] >= step.num_tokens) return {"a logit row is outside the step", i};
  }
  for (int32_t seq = 0; seq < step.num_seqs; ++seq) {
    if (step.query_start[seq + 1] <= step.query_start[seq]) return {"a sequence has no tokens in the step", seq};
    const Span rows = span(step, seq);
    if (rows.first_position < 0) return {"kv_len is shorter than the sequence's new tokens", seq};
    if (step.kv_len[seq] > limits_.max_context) return {"a sequence is longer than the engine's context", seq};
    if (divide_up(step.kv_len[seq], PAGE_TOKENS) > step.max_pages) return {"the page table is too short for a sequence", seq};
    if (rows.first_position / SEAL_TOKENS != (step.kv_len[seq] - 1) / SEAL_TOKENS)
      return {"a chunk crosses a seal border", seq};
    const Status status = check_pages(step, seq);
    if (!status.good()) return status;
  }
  for (int32_t i = 0; i < step.num_moves; ++i) {
    const int32_t *move = step.page_moves + i * 4;
    if (move[0] < 0 || move[0] >= shape_.num_groups || (move[1] != 0 && move[1] != 1))
      return {"a page move names no extent", i};
    for (const int32_t word : {move[2], move[3]}) {
      if (word < 0 || (word >> FORMAT_SHIFT) != PageFormat::fp16) return {"a page move has a format other than fp16", i};
      if (!in_pool(word, move[0])) return {"a page move lies outside the pool", i};
    }
  }
  return {};
}

bool Engine::in_pool(int32_t word, int32_t group) const {
  return static_cast<int64_t>(word & OFFSET_MASK) * OFFSET_UNIT + group_layers_[group] * layer_bytes_ <= pool_bytes_;
}

Status Engine::check_pages(const Step &step, int32_t seq) const {
  const Span rows = span(step, seq);
  for (int32_t group = 0; group < shape_.num_groups; ++group) {
    const int32_t *table = step.page_table + (static_cast<int64_t>(group) * step.num_seqs + seq) * step.max_pages * 2;
    const int32_t first = first_visible(rows.first_position, windows_[group]) / PAGE_TOKENS;
    for (int32_t page = first; page <= (step.kv_len[seq] - 1) / PAGE_TOKENS; ++page) {
      for (int32_t side = 0; side < 2; ++side) {
        const int32_t word = table[page * 2 + side];
        if (word < 0) return {"a page that a sequence reads is missing", seq};
        if ((word >> FORMAT_SHIFT) != PageFormat::fp16) return {"a page has a format that this engine cannot read", seq};
        if (!in_pool(word, group)) return {"a page lies outside the pool", seq};
      }
    }
  }
  return {};
}

void Engine::plan_attention(const Step &step) {
  const int32_t heads_per_kv = shape_.num_heads / shape_.num_kv_heads;
  for (int32_t group = 0; group < shape_.num_groups; ++group) {
    GroupTasks &tasks = tasks_[group];
    tasks.attend.clear();
    tasks.merge.clear();
    int64_t partials = 0;
    for (int32_t seq = 0; seq < step.num_seqs; ++seq) {
      const Span rows = span(step, seq);
      const int32_t count = rows.row_end - rows.row_begin;
      // With one row a sequence there is room for partials; more rows only where the sequence is alone.
      const bool split = count == 1 || (step.num_seqs == 1 && count <= DECODE_TOKENS);
      const int32_t shares = TASKS_A_THREAD * team_.size();
      const int32_t tile = split ? count : std::clamp(count * shape_.num_kv_heads / shares, MIN_TOKEN_TILE, MAX_TOKEN_TILE);
      for (int32_t begin = 0; begin < count; begin += tile) {
        const int32_t end = std::min(begin + tile, count);
        const int32_t first = first_visible(rows.first_position + begin, windows_[group]) / BLOCK_TOKENS;
        const int32_t last = (rows.first_position + end - 1) / BLOCK_TOKENS + 1;
        // Neighbouring blocks together: inside a task the kernel fetches one block ahead.
        const int32_t run = std::max(1, (last - first) * shape_.num_kv_heads * step.num_seqs / shares);
        for (int32_t head = 0; head < shape_.num_kv_heads; ++head) {
          AttendTask task{seq, head, rows.row_begin + begin, rows.row_begin + end, first, last, -1};
          if (!split) {
            tasks.attend.push_back(task);
            continue;
          }
          const int64_t block_floats = static_cast<int64_t>(count) * heads_per_kv * (2 + shape_.head_dim);
          tasks.merge.push_back({head, task.token_begin, task.token_end, last - first, partials});
          for (int32_t block = first; block < last; block += run) {
            task.block_begin = block;
            task.block_end = std::min(block + run, last);
            task.partials = partials + (block - first) * block_floats;
            tasks.attend.push_back(task);
          }
          partials += (last - first) * block_floats;
        }
      }
    }
    // The longest first: later chunks see more blocks, and the last task should be a short one.
    std::stable_sort(tasks.attend.begin(), tasks.attend.end(), [](const AttendTask &a, const AttendTask &b) {
      return a.block_end - a.block_begin > b.block_end - b.block_begin;
    });
  }
}

Status Engine::run(const Step &step) {
  const Status status = check(step);
  if (!status.good()) return status;
  cancel_.store(false, std::memory_order_relaxed);
  stop_ = false;
  step_ = &step;
  for (size_t i = 0; i < (ops_.size() + 1) * PHASES; ++i) counters_[i].next.store(0, std::memory_order_relaxed);
  for (int32_t seq = 0; seq < step.num_seqs; ++seq) {
    const Span rows = span(step, seq);
    for (int32_t row = rows.row_begin; row < rows.row_end; ++row) {
      space_.row_seq[row] = seq;
      space_.row_pos[row] = rows.first_position + row - rows.row_begin;
    }
  }
  plan_attention(step);
  team_.run(&Engine::enter, this);
  if (stop_) return {nullptr, -1, true};
  return {};
}

void Engine::enter(void *self, int thread) { static_cast<Engine *>(self)->work(thread); }

void Engine::work(int thread) {
  fill_rotary(counters_[ops_.size() * PHASES]);
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Op &op = ops_[i];
    Counter *counters = &counters_[i * PHASES];
    switch (op.code) {
      case OpCode::embed: embed(op, counters); break;
      case OpCode::project: project(op, counters); break;
      case OpCode::attend: attend(op, counters, thread); break;
      case OpCode::add: add(op, counters); break;
      case OpCode::gated: gated(op, counters); break;
      case OpCode::head: head(op, counters); break;
    }
    if (thread == 0) stop_ = cancel_.load(std::memory_order_relaxed);
    team_.barrier();
    if (stop_) return;
  }
}

// Angles as float32(position) * inv_freq, like the portable graph; their cosines in double, rounded once.
void Engine::fill_rotary(Counter &counter) {
  const int32_t half = shape_.head_dim / 2, tokens = step_->num_tokens;
  int32_t begin, end;
  while (counter.take(tokens, 8, &begin, &end)) {
    for (size_t table = 0; table < rotaries_.size(); ++table) {
      const float *inv_freq = vectors_[rotaries_[table]];
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

void Engine::embed(const Op &op, Counter *counters) {
  EmbedParams params{&weights_[op.weight0], step_->token_ids, op.scale, space_.hidden, shape_.hidden_size, 0, 0};
  while (counters[0].take(step_->num_tokens, 8, &params.row_begin, &params.row_end)) kernels_->embed(params);
}

Rows Engine::rows_from(const float *x, int64_t stride, int32_t width, const Op &op, bool normed, int32_t rows,
                       Counter &counter) {
  bool plain = false, quantised = false;
  for (const int32_t index : {op.weight0, op.weight1, op.weight2}) {
    if (index == NO_TENSOR) continue;
    (weights_[index].kind == WeightKind::fp16 ? plain : quantised) = true;
  }
  Rows out = space_.rows;
  out.inputs = static_cast<int32_t>(align_up(width, STEP));
  NormParams params{};
  params.x = x;
  params.stride = stride;
  params.weight = normed ? vectors_[op.norm] : nullptr;
  params.width = width;
  params.epsilon = op.epsilon;
  params.quantised = quantised ? &out : nullptr;
  params.plain = plain ? space_.plain : nullptr;
  params.plain_stride = space_.plain_stride;
  while (counter.take(rows, 8, &params.row_begin, &params.row_end)) kernels_->norm(params);
  team_.barrier();
  return out;
}

void Engine::multiply(const Weight *const *weights, int32_t count, const Rows &x, int32_t rows, float *y, int64_t y_stride,
                      bool add, Counter &counter) {
  int32_t total = 0;
  for (int32_t i = 0; i < count; ++i) total += divide_up(weights[i]->outputs, STRIP);
  const int32_t chunk = strip_chunk(total, rows, team_.size());
  int32_t begin, end;
  while (counter.take(total, chunk, &begin, &end)) {
    int32_t first = 0;  // strip of the concatenation at which weight i begins
    int64_t column = 0;
    for (int32_t i = 0; i < count; ++i) {
      const int32_t strips = divide_up(weights[i]->outputs, STRIP);
      MatmulParams params{};
      params.weight = weights[i];
      params.quantised = &x;
      params.plain = space_.plain;
      params.plain_stride = space_.plain_stride;
      params.y = y + column;
      params.y_stride = y_stride;
      params.add = add;
      params.row_end = rows;
      params.strip_begin = std::max(begin - first, 0);
      params.strip_end = std::min(end - first, strips);
      if (params.strip_begin < params.strip_end) kernels_->matmul(params);
      first += strips;
      column += weights[i]->outputs;
    }
  }
}

void Engine::project(const Op &op, Counter *counters) {
  const int32_t rows = step_->num_tokens;
  const Rows x = rows_from(space_.hidden, shape_.hidden_size, shape_.hidden_size, op, true, rows, counters[0]);
  const Weight *weights[3];
  int32_t count = 0;
  for (const int32_t index : {op.weight0, op.weight1, op.weight2}) {
    if (index != NO_TENSOR) weights[count++] = &weights_[index];
  }
  const int64_t width = static_cast<int64_t>(shape_.num_heads + 2 * shape_.num_kv_heads) * shape_.head_dim;
  multiply(weights, count, x, rows, space_.qkv, width, false, counters[1]);
}

LayerPages Engine::pages(const Op &op) const {
  return {pool_,
          step_->page_table + static_cast<int64_t>(op.group) * step_->num_seqs * step_->max_pages * 2,
          step_->max_pages,
          op.group_layer,
          shape_.num_heads,
          shape_.num_kv_heads,
          shape_.head_dim};
}

// One out-of-place copy a move, this layer's part of the extent only, before anything is appended.
void Engine::move_pages(const Op &op, Counter &counter) {
  if (step_->num_moves == 0) return;
  int32_t begin, end;
  while (counter.take(step_->num_moves, 1, &begin, &end)) {
    const int32_t *move = step_->page_moves + begin * 4;
    if (move[0] != op.group) continue;
    const int64_t source = static_cast<int64_t>(move[2] & OFFSET_MASK) * OFFSET_UNIT + op.group_layer * layer_bytes_;
    const int64_t target = static_cast<int64_t>(move[3] & OFFSET_MASK) * OFFSET_UNIT + op.group_layer * layer_bytes_;
    std::memcpy(pool_ + target, pool_ + source, static_cast<size_t>(layer_bytes_));
  }
  team_.barrier();
}

void Engine::attend(const Op &op, Counter *counters, int thread) {
  move_pages(op, counters[0]);
  const int64_t qkv_width = static_cast<int64_t>(shape_.num_heads + 2 * shape_.num_kv_heads) * shape_.head_dim;
  const int64_t out_width = static_cast<int64_t>(shape_.num_heads) * shape_.head_dim;
  const int64_t table = std::find(rotaries_.begin(), rotaries_.end(), op.inv_freq) - rotaries_.begin();
  const int64_t angles = table * limits_.max_step_tokens * (shape_.head_dim / 2);
  RotaryParams rotary{};
  rotary.pages = pages(op);
  rotary.qkv = space_.qkv;
  rotary.qkv_stride = qkv_width;
  rotary.row_seq = space_.row_seq;
  rotary.row_pos = space_.row_pos;
  rotary.cosines = space_.cosines + angles;
  rotary.sines = space_.sines + angles;
  rotary.q_norm = op.q_norm == NO_TENSOR ? nullptr : vectors_[op.q_norm];
  rotary.k_norm = op.k_norm == NO_TENSOR ? nullptr : vectors_[op.k_norm];
  rotary.epsilon = op.epsilon;
  rotary.scale = op.scale;
  while (counters[1].take(step_->num_tokens, 8, &rotary.row_begin, &rotary.row_end)) kernels_->rotary(rotary);
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
  params.scratch = space_.scratch + thread * align_up(attend_scratch_floats(shape_.head_dim), 16);
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
    kernels_->merge({space_.partials + task.partials, task.blocks, shape_.head_dim, shape_.num_heads, shape_.num_kv_heads,
                     task.kv_head, space_.attention, out_width, task.token_begin, task.token_end});
  }
}

void Engine::add(const Op &op, Counter *counters) {
  const int32_t rows = step_->num_tokens, hidden = shape_.hidden_size;
  const bool from_attention = op.input == Input::attention;
  const float *x = from_attention ? space_.attention : space_.feed_forward;
  const int32_t width = from_attention ? shape_.num_heads * shape_.head_dim : shape_.intermediate_size;
  const Rows quantised = rows_from(x, width, width, op, false, rows, counters[0]);
  const Weight *weight = &weights_[op.weight0];
  if (op.post_norm == NO_TENSOR) {
    multiply(&weight, 1, quantised, rows, space_.hidden, hidden, true, counters[1]);
    return;
  }
  multiply(&weight, 1, quantised, rows, space_.extra, hidden, false, counters[1]);
  team_.barrier();
  AddNormParams params{space_.extra, hidden, space_.hidden, hidden, vectors_[op.post_norm], hidden, op.epsilon, 0, 0};
  while (counters[2].take(rows, 8, &params.row_begin, &params.row_end)) kernels_->add_norm(params);
}

void Engine::gated(const Op &op, Counter *counters) {
  const int32_t rows = step_->num_tokens;
  const Rows x = rows_from(space_.hidden, shape_.hidden_size, shape_.hidden_size, op, true, rows, counters[0]);
  GatedParams params{};
  params.gate = &weights_[op.weight0];
  params.up = &weights_[op.weight1];
  params.quantised = &x;
  params.plain = space_.plain;
  params.plain_stride = space_.plain_stride;
  params.y = space_.feed_forward;
  params.y_stride = shape_.intermediate_size;
  params.activation = op.activation;
  params.row_end = rows;
  const int32_t strips = divide_up(params.gate->outputs, STRIP);
  const int32_t chunk = strip_chunk(strips, rows, team_.size());
  while (counters[1].take(strips, chunk, &params.strip_begin, &params.strip_end)) kernels_->gated(params);
}

void Engine::head(const Op &op, Counter *counters) {
  const int32_t rows = step_->num_logit_rows, hidden = shape_.hidden_size;
  if (rows == 0) return;
  int32_t begin, end;
  while (counters[0].take(rows, 8, &begin, &end)) {
    for (int32_t row = begin; row < end; ++row) {
      std::memcpy(space_.logit_hidden + static_cast<int64_t>(row) * hidden,
                  space_.hidden + static_cast<int64_t>(step_->logit_rows[row]) * hidden, static_cast<size_t>(hidden) * 4);
    }
  }
  team_.barrier();
  const Rows x = rows_from(space_.logit_hidden, hidden, hidden, op, true, rows, counters[1]);
  const Weight *weight = &weights_[op.weight0];
  multiply(&weight, 1, x, rows, step_->logits, shape_.vocab_size, false, counters[2]);
  if (op.soft_cap == 0.0f) return;
  team_.barrier();
  const int64_t vocabulary = shape_.vocab_size;
  while (counters[3].take(rows, 1, &begin, &end))
    kernels_->soft_cap(step_->logits + begin * vocabulary, vocabulary, op.soft_cap);
}

}  // namespace edge
