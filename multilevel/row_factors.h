// Gradients of rows by their factors, which are not multiplied out. For the sources of this folder.
#pragma once

#include <utility>
#include <vector>

#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"

namespace sotto::multilevel {

// The factors of the gradients g_i of the rows of one physical batch.
class RowFactors final : public GradSink {
 public:
  // Stores the gradients that it receives, in their smallest form.
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override;
  bool keeps() const override { return true; }

  // <g_i, v> over the parameters of v, [rows] f64; undefined if no gradient arrived.
  Tensor products(const Gradients& v) const;
  // Adds sum_i weight_i g_i to `total`, for weights [rows].
  void add_sum(const Tensor& weights, Gradients& total) const;

 private:
  std::vector<std::pair<Parameter*, std::vector<PerSampleGrad>>> factors_;
};

}  // namespace sotto::multilevel
