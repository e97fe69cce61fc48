#include "autograd/tape.h"

#include <atomic>
#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/memory_labels.h"
#include "autograd/op.h"
#include "autograd/precision.h"
#include "autograd/sink.h"
#include "autograd/trace.h"
#include "core/cuda/capture.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// Returns a new number at each call, so that values of a destroyed tape are not taken for those
// of another one.
std::int64_t next_generation() {
  static std::atomic<std::int64_t> next = 0;
  return next++;
}

// Checks that the result has as many rows as the batched inputs, which must agree. If no input is
// batched, it must have one row per sample.
void check_rows(const Op& op, const std::vector<Var>& inputs, const Tensor& value,
                SampleAxis samples, std::int64_t sample_count) {
  if (!samples.batched()) return;
  const std::int64_t rows = value.size(samples.axis());
  if (op.changes_sample_count) {
    check(rows == 0 || (sample_count != 0 && rows % sample_count == 0),
          "{}: {} rows for {} samples", op.name, rows, sample_count);
    return;
  }
  std::int64_t expected = -1;
  for (const Var& x : inputs) {
    if (!x.samples().batched()) continue;
    const std::int64_t own = x.value().size(x.samples().axis());
    check(expected < 0 || own == expected,
          "{}: its inputs have {} and {} rows for {} samples; use join_views or split_views",
          op.name, expected, own, sample_count);
    expected = own;
  }
  check(rows == (expected < 0 ? sample_count : expected),
        "{}: result {} has {} samples along axis {}, the tape {}", op.name, value.shape(), rows,
        samples.axis(), sample_count);
}

// Checks the loss of a private tape, and the sink.
void check_private(const Tape& tape, const Var& loss, const GradSink& sink) {
  check(loss.samples().batched() && loss.rank() == 1,
        "backward: a private tape needs one loss for each sample: shape {}{}; return one loss for "
        "each row; the engine averages",
        loss.shape(), loss.samples().is_shared() ? ", shared by all samples" : "");
  check(tape.views(loss) == 1,
        "backward: {} losses for {} samples; add the losses of each sample's views",
        loss.shape()[0], tape.sample_count());
  check(sink.bounds_influence(),
        "backward: a private tape delivers only to sinks that bound each sample's influence");
}

}  // namespace

Tape::Tape(const TapeOptions& options) : Tape({.options = options}, Mode::record) {
  if (options.precision != Dtype::f64) check_precision("tape", options.precision);
  check(options.precision != Dtype::f64 || !options.private_data,
        "tape: the precision f64 is not for private data; convert the model by to(Dtype::f64)");
  if (options.precision != Dtype::f32) state_.precision = options.precision;
}

Tape::Tape(State state, Mode mode)
    : state_(std::move(state)),
      generation_(next_generation()),
      grads_generation_(generation_),
      mode_(mode) {}

Tape::~Tape() = default;

Var Tape::append(detail::TapeNode node, const Tensor& value, bool needs_grad) {
  if (tracing()) trace_value({.value = value, .samples = node.samples});
  Var y;
  y.value_ = value;
  y.samples_ = node.samples;
  y.tape_ = this;
  y.generation_ = generation_;
  y.needs_grad_ = needs_grad;
  if (needs_grad) {
    y.index_ = static_cast<int>(nodes_.size());
    node.shape = value.shape();
    node.dtype = value.dtype();
    node.module = memory_label().module;
    if (mode_ == Mode::values) node = {.parameter = node.parameter};
    nodes_.push_back(std::move(node));
  }
  return y;
}

Tensor Tape::entering(const Tensor& value) const {
  const bool widens = state_.precision == Dtype::f64 && is_float(value.dtype());
  return widens ? to_dtype(value, Dtype::f64) : value;
}

Var Tape::input(const Tensor& value, int axis, bool wants_grad) {
  return input_views(value, 1, axis, wants_grad);
}

Var Tape::input_views(const Tensor& value, std::int64_t views, int axis, bool wants_grad) {
  axis = normalize_axis("input", axis, value.rank());
  const std::int64_t rows = value.size(axis);
  check(views >= 1 && rows % views == 0, "input: {} rows are not {} views", rows, views);
  check(state_.sample_count < 0 || rows == views * state_.sample_count,
        "input: {} samples along axis {} of {}, {} before", rows / views, axis, value.shape(),
        state_.sample_count);
  state_.sample_count = rows / views;
  label_input(value);
  return append({.name = "input", .samples = axis, .wants_grad = wants_grad}, entering(value),
                wants_grad);
}

std::int64_t Tape::views(const Var& x) const {
  const std::int64_t rows = x.value().size(x.samples().axis());
  return state_.sample_count > 0 ? rows / state_.sample_count : 1;
}

Var Tape::constant(const Tensor& value, SampleAxis samples, bool wants_grad) {
  check(!samples.batched(), "constant: a value with a sample axis must be an input");
  check(!samples.is_mixed() || !state_.options.private_data,
        "constant: mixed samples of shape {} on a private tape", value.shape());
  check(!wants_grad || !state_.options.private_data,
        "constant: the gradient of a value {} that all samples share is a sum over them, which a "
        "private tape gives to sinks alone; make the value a Parameter, or an input",
        value.shape());
  label_input(value);
  return append({.name = "constant", .samples = samples, .wants_grad = wants_grad}, entering(value),
                wants_grad);
}

Var Tape::use(Parameter& parameter) {
  label_parameter(parameter.value);
  note_use(parameter);
  if (!parameter.trainable) return constant(parameter.value);
  const Var leaf = leaf_of(parameter);
  return state_.precision == Dtype::f64 ? cast(leaf, Dtype::f64) : leaf;
}

Var Tape::leaf_of(Parameter& parameter) {
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

Var Tape::record(const Op& op, std::vector<Var> inputs, const Tensor& value, SampleAxis samples,
                 Backward backward, PullBack pull_back) {
  bool needs_grad = false;
  for (const Var& x : inputs) {
    check(x.tape_ == this,
          "{}: an input is on another tape; inside a segment, use only its inputs and values "
          "computed from them",
          op.name);
    check(holds(x), "{}: an input's tape was emptied by an earlier backward", op.name);
    check(!samples.is_shared() || x.samples().is_shared(),
          "{}: result {} is said to be shared by all samples, and input {} is not", op.name,
          value.shape(), x.shape());
    needs_grad = needs_grad || x.needs_grad();
  }
  if (samples.is_mixed()) mix(op.name, inputs.empty() ? Var() : inputs[0]);
  if (op.captures == Op::Captures::per_sample)
    check_plain_rows(op.name, "tensors that it may capture,", samples,
                     "if it captures none, make its Op with Op::Captures::shared");
  check_rows(op, inputs, value, samples, sample_count());
  if (tracing()) trace_value({.op = op.name, .inputs = inputs, .value = value, .samples = samples});
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
                 .batchable = op.batchable,
                 .self_contained = !op.changes_sample_count,
                 .backward = std::move(backward),
                 .pull_back = std::move(pull_back)},
                value, needs_grad);
}

SampleAxis Tape::mix(const char* op, const Var& x, const char* advice) const {
  constexpr const char* statistics =
      "use operations that stay within a sample: group_norm, layer_norm or instance_norm for batch "
      "norm "
      "(nn::group_norm_for_batch_norm converts one), mean_per_sample for a mean over the batch";
  check(!state_.options.private_data,
        "{}: combines samples, which a private tape refuses: shape {}, sample axis {}; {}", op,
        x.shape(), x.samples().batched() ? std::to_string(x.samples().axis()) : "none",
        advice ? advice : statistics);
  return SampleAxis::mixed();
}

void Tape::check_plain_rows(const char* op, const char* rows, SampleAxis beside,
                            const char* advice) const {
  check(!state_.options.private_data || beside.batched(),
        "{}: {} with a row for each sample, beside a value that all samples share: a private tape "
        "would take them for public; {}",
        op, rows, advice ? advice : "add an input, such as zeros, to the shared value");
}

PhiloxKey Tape::next_key() {
  refuse_capture("public randomness, which the host numbers (dropout)");
  constexpr int draw_bits = 24;
  return {state_.options.seed, (state_.options.step << draw_bits) + state_.draws++};
}

void Tape::set_sample_weights(const Var& weights, std::vector<const Parameter*> parameters) {
  refuse_capture("weights of samples, which the host reads");
  check(state_.options.private_data && is_root(),
        "set_sample_weights: only on a private tape, and outside of segments; elsewhere multiply "
        "the loss by the weights");
  check(weights.tape_ != this || holds(weights),
        "set_sample_weights: the tape was emptied by an earlier backward");
  check(weights.tape_ == this && weights.samples().batched() && weights.rank() == 1 &&
            views(weights) == 1,
        "set_sample_weights: weights {} are not one for each sample of this tape", weights.shape());
  check(!sample_weights_.values.defined(), "set_sample_weights: the tape has weights already");
  sample_weights_ = {weights.value(), std::move(parameters)};
}

void Tape::backward(const Var& loss, GradSink& sink, double seed, Keep keep) {
  check(loss.tape_ == this, "backward: the loss is on another tape");
  check(holds(loss), "backward: the tape was emptied by an earlier backward");
  check(!state_.precision || size_of(loss.dtype()) >= size_of(Dtype::f32),
        "backward: the loss is {}, but must be f32 or f64; convert it by to_f32",
        name(loss.dtype()));
  if (options().private_data) check_private(*this, loss, sink);
  const LabelScope scope = backward_scope(no_text, no_text);
  Tensor gradient = full(loss.shape(), seed, loss.dtype(), loss.value().device());
  if (loss.samples().is_shared()) gradient = gradient.unsqueeze(0);
  backward_from({{loss, gradient}}, sink, keep);
}

void Tape::backward_from(std::vector<std::pair<Var, Tensor>> gradients, GradSink& sink, Keep keep) {
  const LabelScope scope = backward_scope(no_text, no_text);
  if (keep == Keep::nothing) {
    casts_.clear();
    sample_weights_ = {};
  }
  grads_.clear();
  grads_generation_ = generation_;
  detail::BackwardPass pass(nodes_, state_.sample_count, sink);
  for (const auto& [y, dy] : gradients) pass.start(y, dy);
  gradients.clear();
  pass.run(keep == Keep::nothing);
  grads_ = pass.take_grads();
  if (keep == Keep::nothing) generation_ = next_generation();
}

void Tape::clear() {
  casts_.clear();
  sample_weights_ = {};
  nodes_.clear();
  generation_ = next_generation();
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
