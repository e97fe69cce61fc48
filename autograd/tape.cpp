#include "autograd/tape.h"

#include <algorithm>
#include <atomic>
#include <string_view>

#include "autograd/memory_labels.h"
#include "autograd/precision.h"
#include "core/cuda/capture.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

std::vector<const char*>& op_names() {
  static std::vector<const char*> names;
  return names;
}

// Adds in place unless another tensor shares the total, as it may after the first part.
void add_to(Tensor& total, const Tensor& part) {
  if (!total.defined()) {
    total = part;
  } else if (total.sole() && total.is_dense() && total.shape() == part.shape() &&
             total.dtype() == part.dtype()) {
    axpby(1, part, 1, total);
  } else {
    total = add(total, part);
  }
}

// Sums the views of each sample: row r belongs to sample r mod n.
PerSampleGrad by_samples(const PerSampleGrad& gradient, std::int64_t samples) {
  const std::int64_t rows = gradient.samples();
  if (samples <= 0 || rows <= samples) return gradient;
  Grouping views{.unit_of_row = {}, .units = samples};
  for (std::int64_t row = 0; row < rows; ++row) views.unit_of_row.push_back(row % samples);
  return gradient.group(views);
}

}  // namespace

Op::Op(const char* name, Batchable batchable, SampleCount rows)
    : name(name), batchable(batchable), rows(rows) {
  op_names().push_back(name);
}

std::span<const char* const> registered_ops() { return op_names(); }

Tape& Var::tape() const {
  check(tape_ != nullptr, "Var: not on a tape");
  return *tape_;
}

const Var& Adjoint::input_var(int i) const {
  return tape_.nodes_[static_cast<std::size_t>(node_)].inputs[static_cast<std::size_t>(i)];
}

bool Adjoint::wants(int i) const { return input_var(i).needs_grad(); }

bool Adjoint::sums_only() const { return tape_.sums_only_; }

Shape Adjoint::with_batch_dims(const Shape& shape) const {
  Shape y = shape;
  if (rows_ >= 0) y.insert(0, rows_);
  return y;
}

void Adjoint::input(int i, const Tensor& dx) {
  if (!wants(i)) return;
  const Var& x = input_var(i);
  check(dx.shape() == with_batch_dims(x.shape()), "{}: gradient {} for input {} of shape {}",
        tape_.nodes_[static_cast<std::size_t>(node_)].name, dx.shape(), i, x.shape());
  add_to(tape_.cotangents_[static_cast<std::size_t>(x.index_)].value, to_dtype(dx, x.dtype()));
}

void Adjoint::shared(int i, const PerSampleGrad& gradient) {
  if (!wants(i)) return;
  const Var& x = input_var(i);
  check(gradient.shape() == x.shape(), "{}: gradient {} for shared input {} of shape {}",
        tape_.nodes_[static_cast<std::size_t>(node_)].name, gradient.shape(), i, x.shape());
  if (tape_.nodes_[static_cast<std::size_t>(node_)].samples.is_shared()) {
    return input(i, gradient.sum());
  }
  Tape::Cotangent& target = tape_.cotangents_[static_cast<std::size_t>(x.index_)];
  // Factors need not wait for the last use of the value.
  if (tape_.sums_only_) return add_to(target.sum, gradient.sum());
  const PerSampleGrad use = by_samples(gradient, tape_.sample_count());
  const bool both_rows = !target.rows.empty() && target.rows.back().samples() == use.samples() &&
                         target.rows.back().form() == std::string_view("dense") &&
                         use.form() == std::string_view("dense");
  if (!both_rows) return target.rows.push_back(use);
  // Materialized gradients of several uses are kept as one sum.
  target.rows.back() = target.rows.back().with_rows(use);
}

void Adjoint::broadcast(int i, const Tensor& full) {
  if (!wants(i)) return;
  const Var& x = input_var(i);
  const SampleAxis samples = tape_.nodes_[static_cast<std::size_t>(node_)].samples;
  if (rows_ >= 0) {
    Shape kept = x.shape();
    while (kept.rank() + 1 < full.rank()) kept.insert(0, 1);
    kept.insert(0, rows_);
    return input(i, reshape(sum_to(full, kept), with_batch_dims(x.shape())));
  }
  if (!x.samples().is_shared() || samples.is_shared()) return input(i, sum_to(full, x.shape()));
  if (samples.is_mixed())
    return shared(i, PerSampleGrad::materialized(sum_to_f32(full, x.shape()).unsqueeze(0)));
  // Sums over all axes except the sample axis, which moves to the front.
  Shape kept = x.shape();
  while (kept.rank() < full.rank()) kept.insert(0, 1);
  const int axis = samples.axis();
  kept[axis] = full.size(axis);
  const Tensor rows = sum_to_f32(full, kept);
  Shape order{axis};
  for (int k = 0; k < full.rank(); ++k) {
    if (k != axis) order.push_back(k);
  }
  Shape shape = x.shape();
  shape.insert(0, full.size(axis));
  shared(i, PerSampleGrad::materialized(reshape(rows.permute(order), shape)));
}

Tape::Tape(const TapeOptions& options) : options_(options) {
  check_precision("tape", options.precision);
  if (options.precision != Dtype::f32) precision_ = options.precision;
}

Tape::~Tape() = default;

Tensor Adjoint::in_place(const Tensor& dy) const {
  // The tape holds the one reference to dy, and drops it after this backward.
  return dy.sole() && dy.is_dense() ? dy : empty_like(dy);
}

Var Tape::append(Node node, const Tensor& value, bool needs_grad) {
  Var y;
  y.value_ = value;
  y.samples_ = node.samples;
  y.tape_ = this;
  y.needs_grad_ = needs_grad;
  if (needs_grad) {
    y.index_ = static_cast<int>(nodes_.size());
    y.generation_ = generation_;
    node.shape = value.shape();
    node.dtype = value.dtype();
    node.module = memory_label().module;
    if (mode_ == Mode::values) node = {.parameter = node.parameter};
    nodes_.push_back(std::move(node));
  }
  return y;
}

Var Tape::input(const Tensor& value, int axis, bool wants_grad) {
  return input_views(value, 1, axis, wants_grad);
}

Var Tape::input_views(const Tensor& value, std::int64_t views, int axis, bool wants_grad) {
  axis = normalize_axis("input", axis, value.rank());
  const std::int64_t rows = value.size(axis);
  check(views >= 1 && rows % views == 0, "input: {} rows are not {} views", rows, views);
  check(sample_count_ < 0 || rows == views * sample_count_,
        "input: {} samples along axis {} of {}, {} before", rows / views, axis, value.shape(),
        sample_count_);
  sample_count_ = rows / views;
  label_input(value);
  return append({.name = "input", .samples = axis, .wants_grad = wants_grad}, value, wants_grad);
}

std::int64_t Tape::views(const Var& x) const {
  const std::int64_t rows = x.value().size(x.samples().axis());
  return sample_count_ > 0 ? rows / sample_count_ : 1;
}

Var Tape::constant(const Tensor& value, SampleAxis samples, bool wants_grad) {
  check(!samples.batched(), "constant: a value with a sample axis must be an input");
  check(!samples.is_mixed() || !options_.private_data,
        "constant: mixed samples of shape {} on a private tape", value.shape());
  label_input(value);
  return append({.name = "constant", .samples = samples, .wants_grad = wants_grad}, value,
                wants_grad);
}

Var Tape::use(Parameter& parameter) {
  label_parameter(parameter.value);
  note_use(parameter);
  if (!parameter.trainable) return constant(parameter.value);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].parameter != &parameter) continue;
    Var y;
    y.value_ = parameter.value;
    y.tape_ = this;
    y.index_ = static_cast<int>(i);
    y.generation_ = generation_;
    y.needs_grad_ = true;
    return y;
  }
  return append({.name = "parameter", .parameter = &parameter}, parameter.value, true);
}

// Checks that the result has as many rows as the batched inputs, which must agree; if no input is
// batched, one row per sample.
void Tape::check_rows(const Op& op, const std::vector<Var>& inputs, const Tensor& value,
                      SampleAxis samples) const {
  if (!samples.batched()) return;
  const std::int64_t rows = value.size(samples.axis());
  if (op.rows == Op::SampleCount::changes_sample_count) {
    check(rows == 0 || rows % sample_count_ == 0, "{}: {} rows for {} samples", op.name, rows,
          sample_count_);
    return;
  }
  std::int64_t expected = -1;
  for (const Var& x : inputs) {
    if (!x.samples().batched()) continue;
    const std::int64_t own = x.value().size(x.samples().axis());
    check(expected < 0 || own == expected,
          "{}: its inputs have {} and {} rows for {} samples; use join_views or split_views",
          op.name, expected, own, sample_count_);
    expected = own;
  }
  check(rows == (expected < 0 ? sample_count_ : expected),
        "{}: result {} has {} samples along axis {}, the tape {}", op.name, value.shape(), rows,
        samples.axis(), sample_count_);
}

Var Tape::record(const Op& op, std::vector<Var> inputs, const Tensor& value, SampleAxis samples,
                 Backward backward, PullBack pull_back) {
  bool needs_grad = false;
  for (const Var& x : inputs) {
    check(x.tape_ == this,
          "{}: an input is on another tape; inside a segment, use only its inputs and values "
          "computed from them",
          op.name);
    check(holds(x), "{}: an input's tape was emptied by an earlier backward", op.name);
    needs_grad = needs_grad || x.needs_grad();
  }
  check_rows(op, inputs, value, samples);
  // The closure of backward holds the values that it reads; the node itself holds none.
  for (Var& x : inputs) x.value_ = x.value_.outline();
  if (!needs_grad) {
    inputs.clear();
    backward = nullptr;
    pull_back = nullptr;
  }
  label_result(value, op.name);
  return append({.name = op.name,
                 .inputs = std::move(inputs),
                 .samples = samples,
                 .batchable = op.batchable == Op::Batchable::yes,
                 .backward = std::move(backward),
                 .pull_back = std::move(pull_back)},
                value, needs_grad);
}

SampleAxis Tape::mix(const char* op, const Var& x, const char* advice) const {
  constexpr const char* statistics =
      "use operations that stay within a sample: group_norm, layer_norm or instance_norm for batch "
      "norm "
      "(nn::group_norm_for_batch_norm converts one), mean_per_sample for a mean over the batch";
  check(!options_.private_data,
        "{}: combines samples, which a private tape refuses: shape {}, sample axis {}; {}", op,
        x.shape(), x.samples().batched() ? std::to_string(x.samples().axis()) : "none",
        advice ? advice : statistics);
  return SampleAxis::mixed();
}

std::int64_t Tape::next_generation() {
  static std::atomic<std::int64_t> next = 0;
  return next++;
}

std::uint64_t TapeOptions::sample_id(std::int64_t sample) const {
  refuse_capture("public randomness, which the host numbers (dropout)");
  if (rows.empty()) return static_cast<std::uint64_t>(first_row + sample);
  check(sample < std::ssize(rows), "tape: sample {} of {} rows", sample, rows.size());
  return static_cast<std::uint64_t>(rows[static_cast<std::size_t>(sample)]);
}

PhiloxKey Tape::next_key() {
  refuse_capture("public randomness, which the host numbers (dropout)");
  constexpr int draw_bits = 24;
  return {options_.seed, (options_.step << draw_bits) + draws_++};
}

void Tape::check_backward(const Var& loss, const GradSink& sink) const {
  check(loss.tape_ == this, "backward: the loss is on another tape");
  check(holds(loss), "backward: the tape was emptied by an earlier backward");
  check(!precision_ || size_of(loss.dtype()) >= size_of(Dtype::f32),
        "backward: the loss is {}, but must be f32 or f64; convert it by to_f32",
        name(loss.dtype()));
  if (!options_.private_data) return;
  check(loss.samples().batched() && loss.rank() == 1,
        "backward: a private tape needs one loss for each sample: shape {}{}; return one loss for "
        "each row; the engine averages",
        loss.shape(), loss.samples().is_shared() ? ", shared by all samples" : "");
  check(views(loss) == 1,
        "backward: {} losses for {} samples; add the losses of each sample's views",
        loss.shape()[0], sample_count_);
  check(sink.bounds_influence(),
        "backward: a private tape delivers only to sinks that bound each sample's influence");
}

void Tape::backward(const Var& loss, GradSink& sink, double seed, Keep keep) {
  check_backward(loss, sink);
  const LabelScope scope = backward_scope(no_text, no_text);
  Tensor gradient = full(loss.shape(), seed, loss.dtype(), loss.value().device());
  if (loss.samples().is_shared()) gradient = gradient.unsqueeze(0);
  backward_from({{loss, gradient}}, sink, keep);
}

void Tape::backward_from(std::vector<std::pair<Var, Tensor>> gradients, GradSink& sink, Keep keep) {
  const LabelScope scope = backward_scope(no_text, no_text);
  if (keep == Keep::nothing) casts_.clear();
  sums_only_ = sink.sums_only();
  grads_.clear();
  grads_generation_ = generation_;
  sink_ = &sink;
  cotangents_.clear();
  cotangents_.resize(nodes_.size());
  for (const auto& [y, dy] : gradients) {
    if (y.index_ < 0 || !dy.defined()) continue;
    Cotangent& start = cotangents_[static_cast<std::size_t>(y.index_)];
    if (y.samples().is_shared()) {
      start.rows.push_back(PerSampleGrad::materialized(dy));
    } else {
      add_to(start.value, dy);
    }
  }
  gradients.clear();
  for (int index = static_cast<int>(nodes_.size()) - 1; index >= 0; --index) {
    visit(index, sink);
    cotangents_.pop_back();
    if (keep == Keep::nothing) nodes_.pop_back();
  }
  if (keep == Keep::nothing) generation_ = next_generation();
}

void Tape::clear() {
  casts_.clear();
  nodes_.clear();
  generation_ = next_generation();
}

std::vector<PerSampleGrad> Tape::Cotangent::take_rows() {
  if (sum.defined())
    rows.push_back(PerSampleGrad::materialized(std::exchange(sum, Tensor()).unsqueeze(0)));
  return std::exchange(rows, {});
}

void Tape::visit(int index, GradSink& sink) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  Cotangent& cotangent = cotangents_[static_cast<std::size_t>(index)];
  const LabelScope scope = backward_scope(node.name, node.module);
  if (node.parameter) {
    std::vector<PerSampleGrad> rows = cotangent.take_rows();
    if (!rows.empty()) sink.receive(*node.parameter, std::move(rows));
    return;
  }
  if (node.wants_grad) {
    for (const PerSampleGrad& rows : cotangent.take_rows()) add_to(cotangent.value, rows.sum());
    if (cotangent.value.defined()) grads_.emplace_back(index, cotangent.value);
    return;
  }
  if (node.samples.is_shared()) return pull_back(index);
  if (!cotangent.value.defined()) return;
  Adjoint adjoint(*this, index);
  node.backward(cotangent.value, adjoint);
}

Tensor Tape::grad(const Var& input) const {
  check(input.tape_ == this, "grad: the value is on another tape");
  check(input.index_ < 0 || input.generation_ == grads_generation_,
        "grad: no backward has run since the value was recorded");
  for (const auto& [index, value] : grads_) {
    if (index == input.index_) return value;
  }
  return zeros(input.shape(), input.dtype(), input.value().device());
}

}  // namespace sotto
