// Losses as functions that give one number for each sample, [n]: what a private tape accepts.
// Reductions happen within a sample only; averaging over samples is the engine's.
#pragma once

#include <limits>
#include <optional>

#include "autograd/tape.h"

namespace sotto {

struct CrossEntropyOptions {
  int class_axis = 1;
  double label_smoothing = 0;
  // Targets of this value count as nothing.
  std::int64_t ignore_index = std::numeric_limits<std::int64_t>::min();
  // Weights of the classes, [C]; undefined for none.
  Tensor class_weights = {};
};

// The cross entropy of each element, of logits' shape without the class axis: with lp = log_softmax
// over the C classes, s the label smoothing and t the target,
// (1 - s) (-w[t] lp[t]) + (s / C) sum_c -w[c] lp[c]. Targets are i64, i32 or u8; throws for one
// that is neither a class nor ignore_index. Such a target on a GPU, which the host does not wait
// for, makes its element NaN.
Var cross_entropy_elements(const Var& logits, const Tensor& targets,
                           const CrossEntropyOptions& options = {});

// The same averaged within each sample over the elements that are not ignored, [n]; 0 for a sample
// without any. Class weights scale the elements and are not divided out again.
Var cross_entropy(const Var& logits, const Tensor& targets,
                  const CrossEntropyOptions& options = {});

// The squared error averaged within each sample, [n].
Var mse_loss(const Var& x, const Var& target);

}  // namespace sotto
