#include "plan.h"

#include <algorithm>

#include "sizes.h"

namespace edge {
namespace {

constexpr int32_t UNSEEN = -1;
constexpr int32_t MAX_SIDE = 1 << 30;  // so that a side padded to a strip fits 32 bits, and the bytes of any matrix 64
// No model has more (edge/spec.py); products of three of these and a few thousand tokens fit 64 bits.
constexpr int32_t MAX_WIDTH = 1 << 24, MAX_HEADS = 1 << 12, MAX_HEAD_DIM = 1 << 12;

bool makes_sense(const ModelShape &shape) {
  for (const int32_t size : {shape.vocab_size, shape.hidden_size, shape.intermediate_size}) {
    if (size <= 0 || size > MAX_WIDTH) return false;
  }
  return shape.num_kv_heads > 0 && shape.num_heads >= shape.num_kv_heads && shape.num_heads <= MAX_HEADS &&
         shape.num_heads % shape.num_kv_heads == 0 && shape.head_dim >= 2 && shape.head_dim <= MAX_HEAD_DIM &&
         shape.head_dim % 2 == 0 && shape.num_groups > 0;
}

// Looks tensors up by index; NO_TENSOR and strangers are never good.
struct Tensors {
  const std::vector<TensorRecord> &records;

  bool known(int32_t index, bool matrix) const {
    return index >= 0 && index < static_cast<int32_t>(records.size()) && (records[index].kind != WeightKind::fp32) == matrix;
  }
  bool matrix(int32_t index, int64_t outputs, int64_t inputs) const {
    return known(index, true) && records[index].outputs == outputs && records[index].inputs == inputs;
  }
  bool vector(int32_t index, int64_t size) const { return known(index, false) && records[index].outputs == size; }
  bool vector_or_none(int32_t index, int64_t size) const { return index == NO_TENSOR || vector(index, size); }
};

Status check_tensor(const TensorRecord &tensor, int where, int64_t file_bytes) {
  const Status form = check_form(tensor, where);
  if (!form.good()) return form;
  if (tensor.offset < 0 || tensor.offset % WEIGHT_ALIGN || tensor.bytes != tensor_bytes(tensor) ||
      tensor.offset > file_bytes - tensor.bytes) {
    return {"a tensor lies outside the weight file or has another size than its shape", where};
  }
  return {};
}

bool fits(const Op &op, const Tensors &tensors, const ModelShape &shape) {
  const int32_t hidden = shape.hidden_size, middle = shape.intermediate_size;
  switch (op.code) {
    case OpCode::embed: return tensors.matrix(op.weight0, shape.vocab_size, hidden);
    case OpCode::project: {
      int64_t outputs = 0;
      for (const int32_t index : {op.weight0, op.weight1, op.weight2}) {
        if (index == NO_TENSOR) continue;
        if (!tensors.known(index, true) || tensors.records[index].inputs != hidden) return false;
        outputs += tensors.records[index].outputs;
      }
      return outputs == shape.qkv_width() && tensors.vector_or_none(op.bias, shape.qkv_width()) &&
             tensors.vector(op.norm, hidden);
    }
    case OpCode::attend:
      return tensors.vector(op.inv_freq, shape.head_dim / 2) && tensors.vector_or_none(op.q_norm, shape.head_dim) &&
             tensors.vector_or_none(op.k_norm, shape.head_dim) && op.group >= 0 && op.group < shape.num_groups &&
             op.window >= 0;
    case OpCode::add:
      return ((op.input == Input::attention && tensors.matrix(op.weight0, hidden, shape.query_width())) ||
              (op.input == Input::feed_forward && tensors.matrix(op.weight0, hidden, middle))) &&
             tensors.vector_or_none(op.post_norm, hidden);
    case OpCode::gated:
      return tensors.matrix(op.weight0, middle, hidden) && tensors.matrix(op.weight1, middle, hidden) &&
             tensors.vector(op.norm, hidden) && (op.activation == Activation::silu || op.activation == Activation::gelu_tanh);
    case OpCode::head: return tensors.matrix(op.weight0, shape.vocab_size, hidden) && tensors.vector(op.norm, hidden);
    default: return false;
  }
}

// Layers of a group take the slots of an extent in order, so each lies where the runtime's extents have room for it.
bool takes_next_slot(const Op &op, const Plan &plan) { return op.group_layer == plan.group_layers[op.group]; }

// What a step reads must have been written by the step in front of it: project -> attend -> add, gated -> add.
bool follows(const Op &op, const Op *before) {
  switch (op.code) {
    case OpCode::embed: return before == nullptr;
    case OpCode::attend: return before && before->code == OpCode::project;
    case OpCode::add: {
      const int32_t source = op.input == Input::attention ? OpCode::attend : OpCode::gated;
      return before && before->code == source;
    }
    default: return before && (before->code == OpCode::embed || before->code == OpCode::add);
  }
}

// Other matrices than a step names must not be there: kernels would read rows in a form that was not prepared for them. Nor
// must a bias that nothing adds.
bool names_no_more(const Op &op) {
  if (op.bias != NO_TENSOR && op.code != OpCode::project) return false;
  const bool has_one = op.code == OpCode::embed || op.code == OpCode::add || op.code == OpCode::head;
  return (op.code == OpCode::project || op.weight2 == NO_TENSOR) && (!has_one || op.weight1 == NO_TENSOR);
}

}  // namespace

Status check_form(const TensorRecord &record, int where) {
  if (record.kind < 0 || record.kind > WeightKind::int4) return {"a tensor has an unknown kind", where};
  if (record.outputs <= 0 || record.inputs <= 0) return {"a tensor has an empty shape", where};
  if (record.inputs > MAX_SIDE || record.outputs > MAX_SIDE)
    return {"a tensor has more inputs or outputs than kernels can count", where};
  if (record.kind == WeightKind::int8 && record.group != 16 && record.group != 32) {
    return {"an int8 tensor has a group other than 16 and 32", where};
  }
  if (record.kind == WeightKind::int4 && record.group != 32) return {"an int4 tensor has a group other than 32", where};
  return {};
}

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

std::vector<int32_t> distinct_rotaries(const std::vector<Op> &ops) {
  std::vector<int32_t> found;
  for (const Op &op : ops) {
    if (op.code == OpCode::attend && std::find(found.begin(), found.end(), op.inv_freq) == found.end()) {
      found.push_back(op.inv_freq);
    }
  }
  return found;
}

Status read_plan(const uint8_t *file, int64_t file_bytes, const std::vector<TensorRecord> &tensors, const std::vector<Op> &ops,
                 const ModelShape &shape, Plan *plan) {
  if (!makes_sense(shape)) return {"the model's shape makes no sense", -1};
  if (static_cast<size_t>(shape.num_groups) > ops.size()) return {"a layer group has no layers", -1};  // before a list of them
  plan->shape = shape;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorRecord &tensor = tensors[i];
    const Status status = check_tensor(tensor, static_cast<int>(i), file_bytes);
    if (!status.good()) return status;
    const bool matrix = tensor.kind != WeightKind::fp32;
    Weight weight = matrix ? weight_geometry(tensor) : Weight{};
    weight.data = matrix ? file + tensor.offset : nullptr;
    plan->weights.push_back(weight);
    plan->vectors.push_back(matrix ? nullptr : reinterpret_cast<const float *>(file + tensor.offset));
  }
  plan->windows.assign(shape.num_groups, UNSEEN);
  plan->group_layers.assign(shape.num_groups, 0);
  for (size_t i = 0; i < ops.size(); ++i) {
    const Op &op = ops[i];
    const int where = static_cast<int>(i);
    if (!fits(op, {tensors}, shape) || !names_no_more(op)) return {"a step does not fit the model's shapes", where};
    if (!follows(op, i == 0 ? nullptr : &ops[i - 1])) return {"a step stands out of order", where};
    if (op.code != OpCode::attend) continue;
    if (!takes_next_slot(op, *plan)) return {"a layer does not take the next slot of its group", where};
    int32_t &window = plan->windows[op.group];
    if (window != UNSEEN && window != op.window) return {"two layers of a group have different windows", where};
    window = op.window;
    plan->group_layers[op.group] += 1;
  }
  if (std::find(plan->windows.begin(), plan->windows.end(), UNSEEN) != plan->windows.end()) {
    return {"a layer group has no layers", -1};
  }
  if (ops.back().code != OpCode::head) return {"the steps do not end with the head", static_cast<int>(ops.size()) - 1};
  plan->ops = ops;
  plan->rotaries = distinct_rotaries(ops);
  return {};
}

}  // namespace edge
