// CTC: the loss of label sequences whose alignment to the steps is unknown.
#pragma once

#include "autograd/tape.h"

namespace sotto {

// Options of ctc_loss(). `blank` is the class that separates labels.
struct CtcOptions {
  std::int64_t blank = 0;  // class of the blank
  // A sample whose target does not fit into its steps has loss 0 and no gradient, instead of
  // infinity and NaN.
  bool zero_infinity = false;
};

// Connectionist temporal classification (Graves et al. 2006): -log of the probability that the
// labels along a path, with repetitions merged and blanks removed, are the sample's target. Returns
// one loss per sample, [n]. `log_probabilities` are [T, n, C], samples along axis 1; `targets` [n,
// S]. Sample k has target_lengths[k] labels and input_lengths[k] steps ([n] both). Targets and
// lengths are i64, i32 or u8. The gradient is that of the formula, even if probabilities do not add
// up to 1. Throws std::invalid_argument for shapes, labels and lengths that do not fit, and on a
// private tape for shared log-probabilities (Tape::check_plain_rows).
Var ctc_loss(const Var& log_probabilities, const Tensor& targets, const Tensor& input_lengths,
             const Tensor& target_lengths, const CtcOptions& options = {});

}  // namespace sotto
