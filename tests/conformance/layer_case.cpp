#include <algorithm>
#include <cmath>

#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/conformance/kinds.h"

namespace sotto::conformance {

namespace {

// Keeps gradients in the form in which they are delivered.
class CollectingSink final : public GradSink {
 public:
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override {
    received_.emplace_back(&parameter, std::move(uses));
  }
  // [n], over all parameters.
  Tensor squared_norms(std::int64_t samples, NormMethod norm_method) const {
    Tensor total = zeros({samples}, Dtype::f64);
    for (const auto& [parameter, uses] : received_)
      axpby(1, squared_norm(uses, norm_method), 1, total);
    return total;
  }

 private:
  std::vector<std::pair<Parameter*, std::vector<PerSampleGrad>>> received_;
};

// A case recorded on a tape.
struct Recorded {
  Recorded(const Case& c, Dtype dtype, Parameters& parameters, bool private_data = false);

  Tape tape;
  Values inputs, outputs;
  Var loss;  // [n]: each sample's part of the case's scalar
};

// A private tape has no gradient of a shared input, which would be a sum over the samples.
bool has_gradient(const Tape& tape, bool batched) {
  return batched || !tape.options().private_data;
}

Var leaf(Tape& tape, const Described& operand, Dtype dtype) {
  const Tensor value = in_dtype(operand.value, dtype);
  const bool wants_grad =
      operand.role == "input" && has_gradient(tape, operand.batch_dim.has_value());
  return operand.batch_dim ? tape.input(value, *operand.batch_dim, wants_grad)
                           : tape.constant(value, SampleAxis::shared(), wants_grad);
}

Recorded::Recorded(const Case& c, Dtype dtype, Parameters& parameters, bool private_data)
    : tape(tape_options(dtype, private_data)) {
  for (const std::string& name : c.names_after("in.")) {
    inputs.emplace(name, leaf(tape, c.tensor("in." + name), dtype));
  }
  Values values = inputs;
  for (auto& [name, parameter] : parameters) values.emplace(name, tape.use(parameter));
  outputs = evaluate(c.type, {field<Json>(c.body, "args"), values, tape});
  for (const auto& output : field<std::vector<std::string>>(c.body, "outputs")) {
    if (!outputs.count(output)) throw Malformed("no output " + output);
    const Described& weights = c.tensor("grad_out." + output);
    if (!weights.batch_dim) throw Malformed("grad_out." + output + " has no batch_dim");
    const Var part = sum_per_sample(mul(outputs.at(output), leaf(tape, weights, dtype)));
    loss = loss.value().defined() ? add(loss, part) : part;
  }
  if (!loss.value().defined()) throw Malformed("no outputs");
}

void expect_values(const Case& c, const Recorded& run, Comparison& comparison) {
  for (const auto& output : field<std::vector<std::string>>(c.body, "outputs")) {
    comparison.expect("out." + output, run.outputs.at(output).value());
  }
}

void expect_input_gradients(const Recorded& run, Comparison& comparison, const char* how) {
  for (const auto& [name, var] : run.inputs) {
    if (comparison.expects("grad_in." + name) && has_gradient(run.tape, var.samples().batched())) {
      comparison.expect("grad_in." + name, run.tape.grad(var), how);
    }
  }
}

void expect_gradients(const Gradients& gradients, Parameters& parameters, Comparison& comparison,
                      const char* how) {
  for (auto& [name, parameter] : parameters) {
    Tensor gradient = zeros_like(parameter.value);
    for (const auto& [owner, value] : gradients) {
      if (owner == &parameter) gradient = value;
    }
    comparison.expect("grad_param." + name, gradient, how);
  }
}

void check_rows(const Case& c, Dtype dtype, Parameters& parameters, Comparison& comparison) {
  Recorded run(c, dtype, parameters);
  expect_values(c, run, comparison);
  PerSampleGradSink sink;
  run.tape.backward(run.loss, sink);
  expect_input_gradients(run, comparison, "rows");
  Gradients sums;
  for (const auto& [parameter, rows] : sink.all()) sums.emplace_back(parameter, sum(rows, {0}));
  expect_gradients(sums, parameters, comparison, "rows");
  const std::int64_t samples = run.loss.value().numel();
  for (auto& [name, parameter] : parameters) {
    Shape shape = parameter.value.shape();
    shape.insert(0, samples);
    Tensor rows = zeros(shape, parameter.value.dtype());
    for (const auto& [owner, value] : sink.all()) {
      if (owner == &parameter) rows = value;
    }
    comparison.expect("grad_sample." + name, rows);
  }
  if (!sink.all().empty()) comparison.expect("norm_sq", sink.squared_norms(), "rows added up");
}

void check_sums(const Case& c, Dtype dtype, Parameters& parameters, Comparison& comparison) {
  Recorded run(c, dtype, parameters);
  SumSink sink;
  run.tape.backward(run.loss, sink);
  expect_input_gradients(run, comparison, "sum");
  expect_gradients(sink.gradients(), parameters, comparison, "sum");
}

void check_norms(const Case& c, Dtype dtype, Parameters& parameters, Comparison& comparison) {
  Recorded run(c, dtype, parameters);
  CollectingSink sink;
  run.tape.backward(run.loss, sink);
  const std::int64_t samples = run.loss.value().numel();
  comparison.expect("norm_sq", sink.squared_norms(samples, NormMethod::automatic), "automatic");
  comparison.expect("norm_sq", sink.squared_norms(samples, NormMethod::ghost), "ghost");
  comparison.expect("norm_sq", sink.squared_norms(samples, NormMethod::materialize),
                    "materialized");
}

// Checks that a private tape accepts every layer of the vocabulary, and that a bound that clips
// nothing changes nothing.
void check_private(const Case& c, Dtype dtype, Parameters& parameters, Comparison& comparison) {
  std::vector<Parameter*> all;
  for (auto& [name, parameter] : parameters) all.push_back(&parameter);
  // Sums consist of multiples of a small fraction of the bound, which is not far above the norms.
  PerSampleGradSink rows;
  Recorded alone(c, dtype, parameters);
  alone.tape.backward(alone.loss, rows);
  double no_bound = 1;
  if (!rows.all().empty()) {
    for (const double square : rows.squared_norms().to_vector<double>())
      no_bound = std::max(no_bound, std::isfinite(square) ? 2 * std::sqrt(square) : 0);
  }
  for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
    const char* how = passes == ClipPasses::one ? "private, one pass" : "private, two passes";
    Recorded run(c, dtype, parameters, true);
    expect_values(c, run, comparison);
    if (all.empty()) return;
    Clipper clipper(flat_group(all, no_bound), {}, passes);
    clipper.add(run.tape, run.loss);
    expect_input_gradients(run, comparison, how);
    expect_gradients(clipper.clipped_sums(), parameters, comparison, how);
  }
}

}  // namespace

void run_layer(const Case& c, Dtype dtype, Comparison& comparison) {
  Parameters parameters;
  make_parameters(c, dtype, parameters);
  check_rows(c, dtype, parameters, comparison);
  check_sums(c, dtype, parameters, comparison);
  check_norms(c, dtype, parameters, comparison);
  check_private(c, dtype, parameters, comparison);
}

}  // namespace sotto::conformance
