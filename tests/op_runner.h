// Runs an Instance of op_cases.h on a private tape and hands out everything that laws compare.
#pragma once

#include "sotto/autograd/elementwise.h"
#include "sotto/autograd/reductions.h"
#include "sotto/kernels/compute.h"
#include "tests/op_cases.h"

namespace sotto {

// Keeps every use of every parameter as it arrived.
class CollectSink final : public GradSink {
 public:
  void receive(Parameter& parameter, std::vector<PerSample> uses) override {
    collected_.emplace_back(&parameter, std::move(uses));
  }
  // Nothing is released from a test.
  bool bounds_influence() const override { return true; }
  // Nothing when no gradient reached the parameter.
  std::vector<PerSample> uses(const Parameter& parameter) const {
    for (const auto& [known, uses] : collected_) {
      if (known == &parameter) return uses;
    }
    return {};
  }
  std::size_t count() const { return collected_.size(); }

 private:
  std::vector<std::pair<const Parameter*, std::vector<PerSample>>> collected_;
};

// What came of a run of an instance. Outputs have the samples first.
struct OpRun {
  Tensor output;
  Tensor losses;                             // [n]
  std::vector<std::vector<PerSample>> uses;  // by input; empty unless it is a parameter
  std::vector<Tensor> grads;  // by input; undefined unless it is batched and wants one
};

// All uses of a parameter together, [n, ...shape].
inline Tensor rows_of_uses(const std::vector<PerSample>& uses) {
  Tensor total;
  for (const PerSample& use : uses)
    total = total.defined() ? add(total, use.materialize()) : use.materialize();
  return total;
}

inline Tensor samples_first(const Tensor& x, SampleAxis samples) {
  Shape order{samples.axis()};
  for (int i = 0; i < x.rank(); ++i) {
    if (i != samples.axis()) order.push_back(i);
  }
  return contiguous(x.permute(order));
}

// The instance followed by a loss of its output, with random weights as another input: loss n is
// sum_k weights[n,k] y[n,k]. A shared output meets weights with a sample axis of their own.
inline Instance with_loss(const Instance& instance, PublicRandom& random) {
  Tape tape;
  std::vector<Var> x;
  for (const OpInput& input : instance.inputs) {
    x.push_back(input.samples.batched() ? tape.input(input.value, input.samples.axis())
                                        : tape.constant(input.value));
  }
  const Var y = instance.run(x);
  constexpr std::int64_t samples_of_shared = 3;
  Shape shape = y.shape();
  if (y.samples().is_shared()) {
    shape.insert(0, tape.sample_count() < 0 ? samples_of_shared : tape.sample_count());
  }
  Instance whole = instance;
  whole.inputs.push_back(
      {uniform_values(random, shape, -1, 1), y.samples().is_shared() ? 0 : y.samples(), false});
  return whole;
}

// Runs an instance made by with_loss() in `dtype`; `first_row` is the row of its first sample in
// the logical batch.
inline OpRun run_case(const Instance& instance, Dtype dtype, std::int64_t first_row = 0) {
  Tape tape({.private_data = true, .seed = 5, .first_row = first_row});
  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<Var> x;
  for (const OpInput& input : instance.inputs) {
    const Tensor value = is_float(input.value.dtype()) ? to_dtype(input.value, dtype) : input.value;
    parameters.push_back(std::make_unique<Parameter>(value));
    if (input.samples.batched()) {
      x.push_back(tape.input(value, input.samples.axis(), input.wants_grad));
    } else {
      x.push_back(input.wants_grad ? tape.use(*parameters.back()) : tape.constant(value));
    }
  }
  const Var weights = x.back();
  x.pop_back();
  const Var y = instance.run(x);
  const Var loss = sum_per_sample(mul(y, weights));
  OpRun run;
  run.output = y.samples().batched() ? samples_first(y.value(), y.samples()) : y.value();
  run.losses = loss.value();
  CollectSink sink;
  tape.backward(loss, sink);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const OpInput& input = instance.inputs[i];
    run.uses.push_back(sink.uses(*parameters[i]));
    run.grads.push_back(input.samples.batched() && input.wants_grad ? tape.grad(x[i]) : Tensor());
  }
  return run;
}

// Sample n alone.
inline Instance sample_of(const Instance& instance, std::int64_t n) {
  Instance alone = instance;
  for (OpInput& input : alone.inputs) {
    if (input.samples.batched()) input.value = input.value.slice(input.samples.axis(), n, n + 1);
  }
  return alone;
}

inline std::int64_t samples_of(const Instance& instance) {
  return instance.inputs.back().value.size(instance.inputs.back().samples.axis());
}

}  // namespace sotto
