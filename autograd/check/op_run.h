// Runs an instance of check_op.h on a private tape and hands out everything that laws compare.
#pragma once

#include <utility>

#include "autograd/check/check_op.h"

namespace sotto::testing {

// Keeps every use of every parameter as it arrived.
class CollectSink final : public GradSink {
 public:
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override {
    collected_.emplace_back(&parameter, std::move(uses));
  }
  // Nothing is released from a test.
  bool bounds_influence() const override { return true; }
  // Nothing when no gradient reached the parameter.
  std::vector<PerSampleGrad> uses(const Parameter& parameter) const;
  std::size_t count() const { return collected_.size(); }

 private:
  std::vector<std::pair<const Parameter*, std::vector<PerSampleGrad>>> collected_;
};

// What came of a run of an instance. Outputs have the samples first.
struct OpRun {
  Tensor output;
  Tensor losses;  // [n]
  // By input and then by parameter; empty for inputs that are not parameters.
  std::vector<std::vector<PerSampleGrad>> uses;
  // By input; undefined unless it is batched and wants one.
  std::vector<Tensor> grads;
};

// All uses of a parameter together, [n, ...shape].
Tensor rows_of_uses(const std::vector<PerSampleGrad>& uses);

// The instance followed by a loss of its output, with random weights as another input: loss n is
// sum_k weights[n,k] y[n,k]. A shared output meets weights with a sample axis of their own.
Instance with_loss(const Instance& instance, PublicRandom& random);

// Runs an instance made by with_loss() in `dtype`; `first_row` is the row of its first sample in
// the logical batch, `precision` the tape's.
OpRun run_case(const Instance& instance, Dtype dtype, std::int64_t first_row = 0,
               Dtype precision = Dtype::f32);

// Samples begin .. end - 1 alone.
Instance samples_between(const Instance& instance, std::int64_t begin, std::int64_t end);

// How many samples an instance made by with_loss() has.
std::int64_t samples_of(const Instance& instance);

}  // namespace sotto::testing
