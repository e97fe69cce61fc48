// The loss of labels that come in order but at unknown steps.
#pragma once

#include "autograd/tape.h"

namespace sotto {

struct CtcOptions {
  std::int64_t blank = 0;
  // 0, and no gradient, for a sample whose target does not fit into its steps, instead of infinity
  // and NaN.
  bool zero_infinity = false;
};

// Connectionist temporal classification (Graves et al. 2006): -log of the probability that the
// labels of a path through the steps, repetitions merged and blanks left out, are the sample's
// target; one number for each sample, [n]. `log_probabilities` are [T, n, C] with the samples along
// axis 1. `targets` are [n, S]; of sample k the first target_lengths[k] count, and of its steps
// the first input_lengths[k] ([n] both); i64, i32 or u8 all three. The gradient is that of the
// formula, for any log_probabilities. Throws std::invalid_argument for shapes, labels and lengths
// that do not fit.
Var ctc_loss(const Var& log_probabilities, const Tensor& targets, const Tensor& input_lengths,
             const Tensor& target_lengths, const CtcOptions& options = {});

}  // namespace sotto
