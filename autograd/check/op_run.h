// Runs an instance of check_op.h on a private tape and returns the results that the laws compare.
#pragma once

#include <utility>

#include "autograd/check/check_op.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"
#include "core/random/philox.h"

namespace sotto::testing {

// Keeps every use of every parameter as it arrived.
class CollectSink final : public GradSink {
 public:
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override {
    collected_.emplace_back(&parameter, std::move(uses));
  }
  // Tests release no results, so they may receive unclipped gradients.
  bool bounds_influence() const override { return true; }
  // All uses of the parameter; empty if no gradient reached it.
  std::vector<PerSampleGrad> uses(const Parameter& parameter) const;
  std::size_t count() const { return collected_.size(); }

 private:
  std::vector<std::pair<const Parameter*, std::vector<PerSampleGrad>>> collected_;
};

// The results of running an instance. Outputs have the sample axis first.
struct OpRun {
  Tensor output;
  Tensor losses;  // [n]
  // By input and then by parameter; empty for inputs that are not parameters.
  std::vector<std::vector<PerSampleGrad>> uses;
  // By input; undefined unless the input is batched and needs a gradient.
  std::vector<Tensor> grads;
};

// The sum of all uses of a parameter, materialized: [n, ...shape].
Tensor rows_of_uses(const std::vector<PerSampleGrad>& uses);

// The instance followed by a loss of its output, with random weights as a further input: loss n is
// sum_k weights[n,k] y[n,k]. For a shared output the weights bring the sample axis.
Instance with_loss(const Instance& instance, PublicRandom& random);

// The sample axis of the result of an instance made by with_loss(), on a private tape.
SampleAxis samples_of_result(Instance instance);

// Runs an instance made by with_loss() in `dtype`; `first_row` is the row of its first sample in
// the logical batch, `precision` that of the tape, which is not private in f64.
OpRun run_case(const Instance& instance, Dtype dtype, std::int64_t first_row = 0,
               Dtype precision = Dtype::f32);

// The instance with samples begin .. end - 1 only.
Instance samples_between(const Instance& instance, std::int64_t begin, std::int64_t end);

// The number of samples of an instance made by with_loss().
std::int64_t samples_of(const Instance& instance);

}  // namespace sotto::testing
