// Losses that return one number per sample, [n], as a private tape requires. Reductions stay within
// a sample; the engine averages over samples.
#pragma once

#include <limits>
#include <optional>

#include "autograd/tape.h"

namespace sotto {

struct CrossEntropyOptions {
  int class_axis = 1;          // axis of the classes
  double label_smoothing = 0;  // in [0, 1]
  // Elements with this target add nothing to the loss and do not count in the mean.
  std::int64_t ignore_index = std::numeric_limits<std::int64_t>::min();
  // Class weights, [C]; undefined: none. They must be public: counts of private labels are not.
  Tensor class_weights = {};
  // Multiplies log(sum_c exp(x[c]))^2, whatever the target's weight, which keeps logits small
  // (Chowdhery et al. 2022, PaLM: 1e-4).
  double z_loss = 0;
};

// The cross entropy of each element, with logits' shape without the class axis: (1 - s) (-w[t]
// lp[t]) + (s / C) sum_c -w[c] lp[c] + z log(sum_c exp(x[c]))^2, where lp = log_softmax over the C
// classes, s is the label smoothing, z the z-loss and t the target. Targets are i64, i32 or u8.
// Throws for a target that is neither a class nor ignore_index; on a GPU, such a target makes its
// element NaN instead. Throws on a private tape for shared logits (Tape::check_plain_rows).
Var cross_entropy_elements(const Var& logits, const Tensor& targets,
                           const CrossEntropyOptions& options = {});

// The mean of cross_entropy_elements() over the elements of each sample that are not ignored, [n];
// 0 for a sample without any. Class weights scale the elements but not the divisor.
Var cross_entropy(const Var& logits, const Tensor& targets,
                  const CrossEntropyOptions& options = {});

// The mean squared error within each sample, [n].
Var mse_loss(const Var& x, const Var& target);

}  // namespace sotto
