// Norms and weighted sums of several parameters at once: on a GPU in few launches, to the same bits
// as one after another.
#pragma once

#include <vector>

#include "autograd/per_sample/norms.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/per_sample/rounded_sum.h"

namespace sotto {

// A parameter's gradients, and the tensors of zeros to which write_norm_terms() writes.
struct ParameterNorms {
  const std::vector<PerSampleGrad>* uses;
  NormEstimate terms;
};
// write_norm_terms() of each parameter; all lie on one device.
void write_norm_terms(const std::vector<ParameterNorms>& parameters, NormMethod norm_method);

// A parameter's gradients, and the sum that they are added to.
struct ParameterSum {
  const std::vector<PerSampleGrad>* uses;
  RoundedSum sum;
};
// PerSampleGrad::add_to() of each use of each parameter.
void add_sums(const std::vector<ParameterSum>& parameters, const Tensor& weights,
              const BlockEnds& ends);

}  // namespace sotto
