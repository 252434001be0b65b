#include "engine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "sizes.h"

namespace edge {
namespace {

constexpr int PHASES = 4;          // counters an op may use
constexpr int PREFILL_CHUNKS = 2;  // pieces of a matrix a thread with many rows: what a slow core leaves, others take

int32_t strips_of(const Weight &w) { return divide_up(w.outputs, STRIP); }

}  // namespace

Engine::Engine(const Limits &limits, const Kernels *kernels, int threads)
    : limits_(limits), kernels_(kernels), team_(threads) {}

Engine::~Engine() { std::free(block_); }

Status Engine::open(const uint8_t *weights, int64_t weight_bytes, const std::vector<TensorRecord> &tensors,
                    const std::vector<Op> &ops, const ModelShape &shape, const Limits &limits, const Kernels *kernels,
                    int threads, uint8_t *pool, int64_t pool_bytes, std::unique_ptr<Engine> *out) {
  if (limits.max_step_tokens <= 0 || limits.max_sequences <= 0 || limits.max_context <= 0 || limits.max_logit_rows < 0 ||
      std::max({limits.max_step_tokens, limits.max_sequences, limits.max_context, limits.max_logit_rows}) > MAX_TOKENS) {
    return {"the limits make no sense", -1};
  }
  Plan plan;
  const Status status = read_plan(weights, weight_bytes, tensors, ops, shape, &plan);
  if (!status.good()) return status;
  std::unique_ptr<Engine> engine(new Engine(limits, kernels, threads));
  if (engine->team_.size() != threads) return {"the threads could not be started", -1};
  engine->plan_ = std::move(plan);
  engine->pool_ = pool;
  engine->pool_bytes_ = pool_bytes;
  engine->tasks_.resize(shape.num_groups);
  engine->counters_.reset(new Counter[(ops.size() + 1) * PHASES]);
  const int64_t bytes = lay_out(nullptr, tensors, ops, shape, limits, engine->team_.size()).bytes;
  if (posix_memalign(&engine->block_, 4096, static_cast<size_t>(align_up(bytes, 4096)))) {
    engine->block_ = nullptr;
    return {"the workspace could not be allocated", -1};
  }
  std::memset(engine->block_, 0, static_cast<size_t>(bytes));
  engine->space_ = lay_out(static_cast<uint8_t *>(engine->block_), tensors, ops, shape, limits, engine->team_.size());
  *out = std::move(engine);
  return {};
}

Status Engine::run(const Step &step) {
  const Status status = check_step(plan_, limits_, pool_bytes_, step);
  if (!status.good()) return status;
  cancel_.store(false, std::memory_order_relaxed);
  std::fill_n(step.not_finite, step.num_seqs, 0);
  if (step.read_pages) std::fill_n(space_.omitted, int64_t{step.num_seqs} * plan_.shape.num_heads, 0.0f);
  if (step.watch) std::fill_n(step.mass, int64_t{plan_.shape.num_groups} * step.num_seqs * step.max_pages, int64_t{0});
  stop_[0] = stop_[1] = false;
  step_ = &step;
  for (size_t i = 0; i < (plan_.ops.size() + 1) * PHASES; ++i) counters_[i].reset();
  for (int32_t seq = 0; seq < step.num_seqs; ++seq) {
    const Span rows = span_of(step, seq);
    for (int32_t row = rows.row_begin; row < rows.row_end; ++row) {
      space_.row_seq[row] = seq;
      space_.row_pos[row] = rows.first_position + row - rows.row_begin;
    }
  }
  for (int32_t group = 0; group < plan_.shape.num_groups; ++group) {
    plan_attention(plan_, step, group, team_.members(), &tasks_[group]);
  }
  team_.run(&Engine::enter, this);
  if (stop_[0] || stop_[1]) return {nullptr, -1, true};
  if (step.read_pages) write_omitted();
  return {};
}

void Engine::enter(void *self, int thread) { static_cast<Engine *>(self)->work(thread); }

void Engine::work(int thread) {
  if (step_->num_seqs == 0) {
    for (size_t i = 0; i < plan_.ops.size(); ++i) {
      if (plan_.ops[i].code == OpCode::attend) move_pages(plan_.ops[i], counters_[i * PHASES]);
    }
    return;
  }
  fill_rotary(counters_[plan_.ops.size() * PHASES]);
  for (size_t i = 0; i < plan_.ops.size(); ++i) {
    const Op &op = plan_.ops[i];
    Counter *counters = &counters_[i * PHASES];
    switch (op.code) {
      case OpCode::embed: embed(op, counters); break;
      case OpCode::project: project(op, counters, thread); break;
      case OpCode::attend: attend(op, counters, thread); break;
      case OpCode::add: add(op, counters, thread); break;
      case OpCode::gated: gated(op, counters, thread); break;
      case OpCode::head: head(op, counters, thread); break;
    }
    // Two slots in turn: a slot is written again only behind a barrier that everybody reached after reading it.
    bool &stop = stop_[i % 2];
    if (thread == 0) stop = cancel_.load(std::memory_order_relaxed);
    team_.barrier();
    if (stop) return;
  }
}

void Engine::embed(const Op &op, Counter *counters) {
  EmbedParams params{&plan_.weights[op.weight0], step_->token_ids, op.scale, space_.hidden, plan_.shape.hidden_size, 0, 0};
  while (counters[0].take(step_->num_tokens, 8, &params.row_begin, &params.row_end)) kernels_->embed(params);
}

InputRows Engine::rows_from(const Source &source, const Op &op, int32_t rows, Counter &counter, int thread) {
  bool plain = false, quantised = false;
  for (const int32_t index : {op.weight0, op.weight1, op.weight2}) {
    if (index == NO_TENSOR) continue;
    (plan_.weights[index].kind == WeightKind::fp16 ? plain : quantised) = true;
  }
  const bool own = rows <= OWN_ROWS;
  InputRows out = own ? space_.own : space_.shared;
  out.quantised.inputs = static_cast<int32_t>(align_up(source.width, STEP));
  if (own) {
    out.quantised.steps += thread * OWN_ROWS * space_.plain_stride / STEP;
    if (out.plain) out.plain += thread * OWN_ROWS * space_.plain_stride;
  }
  NormParams params{};
  params.stride = source.width;
  params.weight = source.normed ? plan_.vectors[op.norm] : nullptr;
  params.width = source.width;
  params.epsilon = op.epsilon;
  params.quantised = quantised ? &out.quantised : nullptr;
  params.plain = plain ? out.plain : nullptr;
  params.plain_stride = space_.plain_stride;
  const auto prepare = [&](int32_t begin, int32_t end) {
    for (params.row_begin = begin; params.row_begin < end; params.row_begin = params.row_end) {
      const int64_t skipped = source.which ? source.which[params.row_begin] - params.row_begin : 0;
      params.x = source.x + skipped * source.width;
      params.row_end = source.which ? params.row_begin + 1 : end;
      kernels_->norm(params);
    }
  };
  if (own) {
    prepare(0, rows);
    return out;
  }
  int32_t begin, end;
  while (counter.take(rows, 8, &begin, &end)) prepare(begin, end);
  team_.barrier();
  return out;
}

Engine::Matrices Engine::matrices_of(const Op &op) const {
  Matrices all{};
  for (const int32_t index : {op.weight0, op.weight1, op.weight2}) {
    if (index == NO_TENSOR) continue;
    all.weights[all.count++] = &plan_.weights[index];
    if (op.code != OpCode::gated || all.count == 1) all.strips += strips_of(plan_.weights[index]);
  }
  return all;
}

bool Engine::take_strips(int32_t strips, int32_t rows, int thread, Counter &counter, Strips *found) {
  const int32_t members = team_.members();
  // With few rows memory is the limit, and one long stream a thread reads up to 40 % faster than several (kernels_bench).
  if (rows <= DECODE_TOKENS) return counter.take_piece(strips, members, thread, &found->begin, &found->end, &found->share_end);
  const int32_t chunk = std::max(1, divide_up(strips, members) / PREFILL_CHUNKS);
  const bool is_some = counter.take(strips, chunk, &found->begin, &found->end);
  found->share_end = found->end;
  return is_some;
}

// Strips [begin, end) of an op's matrices, as far as they lie one behind another.
Upcoming Engine::strips_from(const Op &op, int32_t begin, int32_t end) const {
  const Matrices all = matrices_of(op);
  if (op.code == OpCode::gated) {
    const Weight &gate = *all.weights[0], &up = *all.weights[1];
    return {{gate.data + begin * gate.strip_bytes, up.data + begin * up.strip_bytes}, 2, (end - begin) * gate.strip_bytes};
  }
  for (int32_t i = 0; i < all.count; ++i) {
    const Weight &w = *all.weights[i];
    const int32_t strips = strips_of(w);
    if (begin < strips) return {{w.data + begin * w.strip_bytes, nullptr}, 1, (std::min(end, strips) - begin) * w.strip_bytes};
    begin -= strips;
    end -= strips;
  }
  return {};
}

Upcoming Engine::upcoming(const Op &op, const Strips &strips, int32_t done, int32_t rows, int thread) const {
  if (rows > DECODE_TOKENS) return {};
  if (done < strips.share_end) return strips_from(op, done, strips.share_end);
  const Op &next = plan_.ops[following_product(static_cast<size_t>(&op - plan_.ops.data()))];
  const int32_t shares = std::min(team_.members(), Counter::MOST_SHARES);
  const Share share = share_of(matrices_of(next).strips, shares, thread % shares);
  return strips_from(next, share.begin, share.end);
}

// Of the op that multiplies behind this one; the last is followed by the first of the next step.
size_t Engine::following_product(size_t index) const {
  do index = (index + 1) % plan_.ops.size();
  while (plan_.ops[index].code == OpCode::embed || plan_.ops[index].code == OpCode::attend);
  return index;
}

void Engine::multiply(const Op &op, const InputRows &x, int32_t rows, float *y, int64_t y_stride, bool add, Counter &counter,
                      int thread) {
  const Matrices all = matrices_of(op);
  Strips taken;
  while (take_strips(all.strips, rows, thread, counter, &taken)) {
    int32_t first = 0;  // strip of the concatenation at which weight i begins
    int64_t column = 0;
    for (int32_t i = 0; i < all.count; ++i) {
      const Weight &w = *all.weights[i];
      const int32_t begin = std::max(taken.begin, first), end = std::min(taken.end, first + strips_of(w));
      if (begin < end) {
        MatmulParams params{};
        params.weight = &w;
        params.quantised = &x.quantised;
        params.plain = x.plain;
        params.plain_stride = space_.plain_stride;
        params.y = y + column;
        params.y_stride = y_stride;
        params.add = add;
        params.row_end = rows;
        params.strip_begin = begin - first;
        params.strip_end = end - first;
        params.upcoming = upcoming(op, taken, end, rows, thread);
        kernels_->matmul(params);
      }
      first += strips_of(w);
      column += w.outputs;
    }
  }
}

void Engine::project(const Op &op, Counter *counters, int thread) {
  const int32_t rows = step_->num_tokens;
  const int64_t width = plan_.shape.qkv_width();
  const bool biased = op.bias != NO_TENSOR;
  int32_t begin, end;
  while (biased && counters[2].take(rows, 8, &begin, &end)) {  // the product is added to it
    for (int32_t row = begin; row < end; ++row) std::copy_n(plan_.vectors[op.bias], width, space_.qkv + row * width);
  }
  const InputRows x = rows_from({space_.hidden, plan_.shape.hidden_size, true, nullptr}, op, rows, counters[0], thread);
  if (biased && rows <= OWN_ROWS) team_.barrier();
  multiply(op, x, rows, space_.qkv, width, biased, counters[1], thread);
}

void Engine::add(const Op &op, Counter *counters, int thread) {
  const int32_t rows = step_->num_tokens, hidden = plan_.shape.hidden_size;
  const bool from_attention = op.input == Input::attention;
  const float *x = from_attention ? space_.attention : space_.feed_forward;
  const int32_t width = from_attention ? plan_.shape.num_heads * plan_.shape.head_dim : plan_.shape.intermediate_size;
  const InputRows input = rows_from({x, width, false, nullptr}, op, rows, counters[0], thread);
  if (op.post_norm == NO_TENSOR) {
    multiply(op, input, rows, space_.hidden, hidden, true, counters[1], thread);
    return;
  }
  multiply(op, input, rows, space_.extra, hidden, false, counters[1], thread);
  team_.barrier();
  AddNormParams params{space_.extra, hidden, space_.hidden, hidden, plan_.vectors[op.post_norm], hidden, op.epsilon, 0, 0};
  while (counters[2].take(rows, 8, &params.row_begin, &params.row_end)) kernels_->add_norm(params);
}

void Engine::gated(const Op &op, Counter *counters, int thread) {
  const int32_t rows = step_->num_tokens;
  const InputRows x = rows_from({space_.hidden, plan_.shape.hidden_size, true, nullptr}, op, rows, counters[0], thread);
  GatedParams params{};
  params.gate = &plan_.weights[op.weight0];
  params.up = &plan_.weights[op.weight1];
  params.quantised = &x.quantised;
  params.plain = x.plain;
  params.plain_stride = space_.plain_stride;
  params.y = space_.feed_forward;
  params.y_stride = plan_.shape.intermediate_size;
  params.activation = op.activation;
  params.row_end = rows;
  Strips taken;
  while (take_strips(strips_of(*params.gate), rows, thread, counters[1], &taken)) {
    params.strip_begin = taken.begin;
    params.strip_end = taken.end;
    params.upcoming = upcoming(op, taken, taken.end, rows, thread);
    kernels_->gated(params);
  }
}

void Engine::head(const Op &op, Counter *counters, int thread) {
  const int32_t rows = step_->num_logit_rows, hidden = plan_.shape.hidden_size;
  if (rows == 0) return;
  const InputRows x = rows_from({space_.hidden, hidden, true, step_->logit_rows}, op, rows, counters[0], thread);
  multiply(op, x, rows, step_->logits, plan_.shape.vocab_size, false, counters[1], thread);
  if (op.soft_cap == 0.0f) return;
  team_.barrier();
  int32_t begin, end;
  const int64_t vocabulary = plan_.shape.vocab_size;
  while (counters[2].take(rows, 1, &begin, &end))
    kernels_->soft_cap(step_->logits + begin * vocabulary, vocabulary, op.soft_cap);
}

}  // namespace edge
