// Python's view of the core: arrays in, a status out. Validates dtypes and shapes, then calls; no arithmetic here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "binding_bench.h"
#include "engine.h"
#include "file_map.h"
#include "pool_map.h"
#include "sample.h"

namespace nb = nanobind;

namespace {

template <class T, int Dims>
using Input = nb::ndarray<const T, nb::ndim<Dims>, nb::c_contig, nb::device::cpu>;
template <class T, int Dims>
using Output = nb::ndarray<T, nb::ndim<Dims>, nb::c_contig, nb::device::cpu>;
using Result = std::tuple<std::string, int, bool>;  // message (empty: good), where, cancelled

constexpr int RECORD_FIELDS = 7;
constexpr int64_t MOST_BYTES = int64_t{1} << 46;  // of a mapping: sums of them stay far from 63 bits

edge::TensorRecord record_at(const int64_t *row) {
  for (int i = 0; i < 5; ++i) {
    if (row[i] != static_cast<int32_t>(row[i])) throw std::invalid_argument("a tensor record holds a number above 32 bits");
  }
  return {static_cast<int32_t>(row[0]),
          static_cast<int32_t>(row[1]),
          static_cast<int32_t>(row[2]),
          static_cast<int32_t>(row[3]),
          static_cast<int32_t>(row[4]),
          row[5],
          row[6]};
}

std::vector<edge::TensorRecord> read_records(const Input<int64_t, 2> &rows) {
  if (rows.shape(1) != RECORD_FIELDS) throw std::invalid_argument("tensor records have 7 fields");
  std::vector<edge::TensorRecord> records;
  for (size_t i = 0; i < rows.shape(0); ++i) records.push_back(record_at(rows.data() + i * RECORD_FIELDS));
  return records;
}

// A single tensor, whose form is one that kernels know.
edge::TensorRecord read_record(const std::vector<int64_t> &record) {
  if (record.size() != RECORD_FIELDS) throw std::invalid_argument("a tensor record has 7 fields");
  const edge::TensorRecord tensor = record_at(record.data());
  const edge::Status form = edge::check_form(tensor, 0);
  if (!form.good()) throw std::invalid_argument(form.message);
  return tensor;
}

std::vector<edge::Op> read_ops(const nb::bytes &blob) {
  if (blob.size() % sizeof(edge::Op)) throw std::invalid_argument("the step list has another record size than this build");
  std::vector<edge::Op> ops(blob.size() / sizeof(edge::Op));
  std::memcpy(ops.data(), blob.c_str(), blob.size());
  return ops;
}

edge::ModelShape read_shape(const std::vector<int32_t> &v) {
  if (v.size() != 7) throw std::invalid_argument("a model shape has 7 numbers");
  return {v[0], v[1], v[2], v[3], v[4], v[5], v[6]};
}

edge::Limits read_limits(const std::vector<int32_t> &v) {
  if (v.size() != 4) throw std::invalid_argument("limits are 4 numbers");
  return {v[0], v[1], v[2], v[3]};
}

const edge::Kernels *need_kernels(const std::string &name) {
  const edge::Kernels *kernels = edge::find_kernels(name.c_str());
  if (!kernels) throw std::invalid_argument("this machine or build has no instruction set named " + name);
  return kernels;
}

Result result(const edge::Status &status) { return {status.message ? status.message : "", status.where, status.cancelled}; }

[[noreturn]] void throw_errno(int error) {
  errno = error;
  PyErr_SetFromErrno(PyExc_OSError);
  throw nb::python_error();
}

// The first `bytes` bytes of an open file. OSError with the system's reason.
nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>> map_file(int fd, int64_t bytes, const std::string &loss) {
  if (bytes <= 0) throw std::invalid_argument("an empty file cannot be mapped");
  auto map = std::make_unique<edge::FileMap>();
  if (const int error = map->open(fd, bytes, loss)) throw_errno(error);
  const uint8_t *data = map->data();
  const size_t shape[] = {static_cast<size_t>(bytes)};
  nb::capsule owner(map.release(), [](void *self) noexcept { delete static_cast<edge::FileMap *>(self); });
  return {data, 1, shape, owner};
}

using PoolArray = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>;

// Memory of pages with files behind it, and where each file begins. OSError with the system's reason; its `filename` is the
// number of the file that could not be mapped, None where it was the memory.
std::tuple<PoolArray, std::vector<int64_t>> map_pool(int64_t bytes,
                                                     const std::vector<std::tuple<int, int64_t, std::string>> &files) {
  std::vector<edge::PoolMap::File> wanted;
  for (const auto &[fd, file_bytes, loss] : files) {
    if (file_bytes <= 0 || file_bytes > MOST_BYTES) throw std::invalid_argument("a file of this size cannot be mapped");
    wanted.push_back({fd, file_bytes, loss});
  }
  if (bytes <= 0 || bytes > MOST_BYTES) throw std::invalid_argument("a pool of this size cannot be had");
  auto map = std::make_unique<edge::PoolMap>();
  if (const edge::PoolMap::Error error = map->open(bytes, wanted); error.number) {
    if (error.file < 0) throw_errno(error.number);
    errno = error.number;
    PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, nb::int_(error.file).ptr());
    throw nb::python_error();
  }
  uint8_t *data = map->data();
  std::vector<int64_t> offsets = map->file_offsets();
  const size_t shape[] = {static_cast<size_t>(map->bytes())};
  nb::capsule owner(map.release(), [](void *self) noexcept { delete static_cast<edge::PoolMap *>(self); });
  return {PoolArray(data, 1, shape, owner), std::move(offsets)};
}

// Engine plus the arrays that it points into.
class PyEngine {
 public:
  PyEngine(Input<uint8_t, 1> weights, const Input<int64_t, 2> &tensors, const nb::bytes &ops, const std::vector<int32_t> &shape,
           const std::vector<int32_t> &limits, const std::string &isa, int threads, Output<uint8_t, 1> pool)
      : weights_(weights), pool_(pool), shape_(read_shape(shape)), kernels_(need_kernels(isa)) {
    const edge::Status status =
        edge::Engine::open(weights_.data(), static_cast<int64_t>(weights_.size()), read_records(tensors), read_ops(ops), shape_,
                           read_limits(limits), kernels_, threads, pool_.data(), static_cast<int64_t>(pool_.size()), &engine_);
    if (status.good()) return;
    // `check_plan` comes first, so what fails here is the machine.
    PyErr_SetString(PyExc_MemoryError, status.message);
    throw nb::python_error();
  }

  Result run(const Input<int32_t, 1> &token_ids, const Input<int32_t, 1> &query_start, const Input<int32_t, 1> &kv_len,
             const Input<int32_t, 4> &page_table, const Input<int32_t, 2> &page_moves, const Input<int32_t, 1> &logit_rows,
             const Input<int32_t, 1> &read_pages, const Input<int32_t, 1> &watch, const Output<float, 2> &logits,
             const Output<int32_t, 1> &not_finite, const Output<float, 1> &omitted, const Output<int64_t, 3> &mass) {
    const size_t seqs = kv_len.size();
    if (query_start.size() != seqs + 1 || page_table.shape(0) != static_cast<size_t>(shape_.num_groups) ||
        page_table.shape(1) != seqs || page_table.shape(3) != 2 || page_moves.shape(1) != 4 ||
        logits.shape(0) != logit_rows.size() || logits.shape(1) != static_cast<size_t>(shape_.vocab_size) ||
        not_finite.size() != seqs || omitted.size() != seqs || (read_pages.size() && read_pages.size() != seqs) ||
        (watch.size() && (watch.size() != seqs || mass.shape(0) != page_table.shape(0) || mass.shape(1) != seqs ||
                          mass.shape(2) != page_table.shape(2)))) {
      throw std::invalid_argument("the arrays of a step disagree in shape");
    }
    const edge::Step step{token_ids.data(),
                          query_start.data(),
                          kv_len.data(),
                          page_table.data(),
                          page_moves.data(),
                          logit_rows.data(),
                          read_pages.size() ? read_pages.data() : nullptr,
                          watch.size() ? watch.data() : nullptr,
                          logits.data(),
                          not_finite.data(),
                          omitted.data(),
                          mass.data(),
                          static_cast<int32_t>(token_ids.size()),
                          static_cast<int32_t>(seqs),
                          static_cast<int32_t>(page_table.shape(2)),
                          static_cast<int32_t>(page_moves.shape(0)),
                          static_cast<int32_t>(logit_rows.size())};
    nb::gil_scoped_release unlocked;
    return result(engine_->run(step));
  }

  void cancel() { engine_->cancel(); }
  std::string isa() const { return kernels_->name; }

 private:
  Input<uint8_t, 1> weights_;
  Output<uint8_t, 1> pool_;
  const edge::ModelShape shape_;
  const edge::Kernels *const kernels_;
  std::unique_ptr<edge::Engine> engine_;
};

// y [M, N] = x [M, K] times the packed matrix, through the same row quantisation as the engine; for tests and benches.
void matmul(const std::string &isa, const Input<uint8_t, 1> &strips, const std::vector<int64_t> &record,
            const Input<float, 2> &x, const Output<float, 2> &y) {
  const edge::TensorRecord tensor = read_record(record);
  if (tensor.kind == edge::WeightKind::fp32) throw std::invalid_argument("matmul: the tensor is a vector");
  const int64_t rows = static_cast<int64_t>(x.shape(0)), width = static_cast<int64_t>(x.shape(1));
  if (static_cast<int64_t>(strips.size()) != edge::tensor_bytes(tensor) || width != tensor.inputs || y.shape(0) != x.shape(0) ||
      static_cast<int64_t>(y.shape(1)) != tensor.outputs) {
    throw std::invalid_argument("matmul: the arrays disagree in shape");
  }
  edge::Weight weight = edge::weight_geometry(tensor);
  weight.data = strips.data();
  std::vector<edge::RowStep> steps(rows * weight.inputs / edge::STEP);
  std::vector<float> plain(rows * weight.inputs);
  const edge::Rows quantised{steps.data(), weight.inputs};
  const edge::Kernels *kernels = need_kernels(isa);
  const int32_t count = static_cast<int32_t>(rows);
  kernels->norm({x.data(), width, nullptr, tensor.inputs, 0.0f, &quantised, plain.data(), weight.inputs, 0, count});
  kernels->matmul({&weight, &quantised, plain.data(), weight.inputs, y.data(), tensor.outputs, 0, 0, count, 0,
                   (tensor.outputs + edge::STRIP - 1) / edge::STRIP});
}

void move_parts(const std::string &isa, int side, int source_format, int target_format, int head_dim,
                const Input<uint8_t, 1> &source, const Output<uint8_t, 1> &target) {
  for (const int format : {source_format, target_format}) {
    if (side < 0 || side > 1 || format < 0 || format > edge::PageFormat::int2 || head_dim < 2 || head_dim > (1 << 12) ||
        !edge::can_hold(side, format, head_dim)) {
      throw std::invalid_argument("move_parts: a format that these heads cannot be kept in");
    }
  }
  if (!(edge::MOVE_TARGETS[source_format] >> target_format & 1)) {
    throw std::invalid_argument("move_parts: no kernel converts between these formats");
  }
  const int64_t from = edge::part_bytes(side, source_format, head_dim), to = edge::part_bytes(side, target_format, head_dim);
  const int64_t heads = static_cast<int64_t>(source.size()) / from;
  if (heads < 1 || heads > (1 << 12) || static_cast<int64_t>(source.size()) != heads * from ||
      static_cast<int64_t>(target.size()) != heads * to) {
    throw std::invalid_argument("move_parts: the arrays disagree in size");
  }
  need_kernels(isa)->move(
      {source.data(), target.data(), side, source_format, target_format, static_cast<int32_t>(heads), head_dim});
}

void check_row(const Input<float, 1> &logits) {
  if (logits.size() == 0 || logits.size() > INT32_MAX) throw std::invalid_argument("a row of logits is empty or too long");
}

std::tuple<int32_t, float> best_logit(const Input<float, 1> &logits) {
  check_row(logits);
  const edge::BestLogit best = edge::best_logit(logits.data(), static_cast<int64_t>(logits.size()));
  return {best.id, best.value};
}

void best_scores(const Input<float, 1> &logits, float top, float temperature, const Output<int32_t, 1> &ids,
                 const Output<float, 1> &values) {
  check_row(logits);
  if (ids.size() == 0 || ids.size() > logits.size() || values.size() != ids.size()) {
    throw std::invalid_argument("best_scores: wants 1 to all of the scores, and as many ids as values");
  }
  edge::best_scores({logits.data(), static_cast<int64_t>(logits.size()), top, temperature}, static_cast<int64_t>(ids.size()),
                    ids.data(), values.data());
}

double sum_exponentials(const Input<float, 1> &logits, float top, float temperature) {
  check_row(logits);
  return edge::sum_exponentials({logits.data(), static_cast<int64_t>(logits.size()), top, temperature});
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  const edge::Kernels *tables[edge::MAX_TABLES];
  for (int i = 0, count = edge::list_kernels(tables); i < count; ++i) names.emplace_back(tables[i]->name);
  return names;
}

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "EdgeZero's native core: kernels, page formats, the CPU engine.";
  m.attr("CONTRACT_VERSION") = edge::VERSION;
  m.attr("INTERFACE") = edge::INTERFACE;
  m.attr("OP_BYTES") = sizeof(edge::Op);
  m.def("instruction_sets", &instruction_sets, "Names of the instruction sets that run here, slowest first.");
  m.def("best_instruction_set", [] { return std::string(edge::find_kernels("auto")->name); });
  m.def(
      "check_plan",
      [](const Input<uint8_t, 1> &weights, const Input<int64_t, 2> &tensors, const nb::bytes &ops,
         const std::vector<int32_t> &shape) {
        edge::Plan plan;
        return result(edge::read_plan(weights.data(), static_cast<int64_t>(weights.size()), read_records(tensors),
                                      read_ops(ops), read_shape(shape), &plan));
      },
      nb::arg("weights"), nb::arg("tensors"), nb::arg("ops"), nb::arg("shape"),
      "Whether an engine can be opened over the file.");
  m.def(
      "workspace_bytes",
      [](const Input<int64_t, 2> &tensors, const nb::bytes &ops, const std::vector<int32_t> &shape,
         const std::vector<int32_t> &limits, int threads) {
        return edge::lay_out(nullptr, read_records(tensors), read_ops(ops), read_shape(shape), read_limits(limits), threads)
            .bytes;
      },
      nb::arg("tensors"), nb::arg("ops"), nb::arg("shape"), nb::arg("limits"), nb::arg("threads"));
  m.def(
      "map_file", &map_file, nb::arg("fd"), nb::arg("bytes"), nb::arg("loss") = "",
      "Read-only uint8 [bytes] of an open file; nothing is copied. `loss`: the line with which the process ends where the file "
      "is cut short meanwhile.");
  m.def("map_pool", &map_pool, nb::arg("bytes"), nb::arg("files"),
        "uint8 array: `bytes` of zeroed memory, behind it the files (fd, bytes, loss), read-only; and where each file begins.");
  m.def("tensor_bytes", [](const std::vector<int64_t> &record) { return edge::tensor_bytes(read_record(record)); });
  m.def("matmul", &matmul, nb::arg("isa"), nb::arg("strips"), nb::arg("record"), nb::arg("x"),
        nb::arg("y").noconvert());  // a converted copy would take the results
  m.def("move_parts", &move_parts, nb::arg("isa"), nb::arg("side"), nb::arg("source_format"), nb::arg("target_format"),
        nb::arg("head_dim"), nb::arg("source"), nb::arg("target").noconvert(),
        "One layer's part of a page move: side 0 K, 1 V, formats of contract.PAGE_FORMATS, a part a kv head.");
  m.def("best_logit", &best_logit, nb::arg("logits"), "The lowest id of the best logit, and its value: NaN where any is.");
  m.def("best_scores", &best_scores, nb::arg("logits"), nb::arg("top"), nb::arg("temperature"), nb::arg("ids").noconvert(),
        nb::arg("values").noconvert(), "The best of (logit - top) / temperature, as many as `ids` has room for, best first.");
  m.def("sum_exponentials", &sum_exponentials, nb::arg("logits"), nb::arg("top"), nb::arg("temperature"));
  nb::class_<PyEngine>(m, "Engine")
      .def(nb::init<Input<uint8_t, 1>, const Input<int64_t, 2> &, const nb::bytes &, const std::vector<int32_t> &,
                    const std::vector<int32_t> &, const std::string &, int, Output<uint8_t, 1>>(),
           nb::arg("weights"), nb::arg("tensors"), nb::arg("ops"), nb::arg("shape"), nb::arg("limits"), nb::arg("isa"),
           nb::arg("threads"), nb::arg("pool").noconvert())
      .def("run", &PyEngine::run, nb::arg("token_ids"), nb::arg("query_start"), nb::arg("kv_len"), nb::arg("page_table"),
           nb::arg("page_moves"), nb::arg("logit_rows"), nb::arg("read_pages"), nb::arg("watch"), nb::arg("logits").noconvert(),
           nb::arg("not_finite").noconvert(), nb::arg("omitted").noconvert(), nb::arg("mass").noconvert())
      .def("cancel", &PyEngine::cancel)
      .def_prop_ro("isa", &PyEngine::isa);
  bind_bench(m);
}
