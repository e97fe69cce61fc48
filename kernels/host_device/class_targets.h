// The targets of a cross entropy, on every device.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/view.h"

namespace sotto {

// The loss of a row of logits with target t is -sum_c q[c] log_softmax[c] + z_loss log(sum_c
// exp(logit[c]))^2, where q[c] = spread(c) + (own(row) if c = t).
struct ClassTargets {
  View ids;              // [rows], i64, row-major
  View weights;          // [classes], of the logits' accumulation type; without data: all 1
  double smoothing = 0;  // the share of the target that all classes have
  std::int64_t ignored = INT64_MIN;  // a row of this id has no loss
  double z_loss = 0;

  HD std::int64_t id(std::int64_t row) const { return ids.as<const std::int64_t>()[row]; }
  HD bool ignores(std::int64_t row) const { return id(row) == ignored; }
  // NaN for an id that is no class.
  template <class A>
  HD double own(std::int64_t row, std::int64_t classes) const {
    const std::int64_t t = id(row);
    return t >= 0 && t < classes ? (1 - smoothing) * weight<A>(t) : NAN;
  }
  template <class A>
  HD double spread(std::int64_t c, std::int64_t classes) const {
    return smoothing / static_cast<double>(classes) * weight<A>(c);
  }

 private:
  template <class A>
  HD double weight(std::int64_t c) const {
    return weights.data ? static_cast<double>(weights.as<const A>()[c * weights.stride[0]]) : 1;
  }
};

// The distance of two rows of logits [rows, classes], and of their gradients: rows may have gaps,
// of equal size in both arrays.
inline std::int64_t logit_pitch(const View& logits) {
  return logits.size[0] > 1 ? logits.stride[0] : logits.size[1];
}

// Per row: the numbers that the forward pass saves for the gradient.
template <class A>
struct CrossEntropyStats {
  A max;      // of the logits
  A log_sum;  // log sum_c exp(logit - max)
  A total;    // sum_c q[c] + 2 z_loss log(sum_c exp(logit)): of softmax in the gradient

  // -log_softmax
  HD A loss(A logit) const { return log_sum - (logit - max); }
  // Adds the z-loss to a row's loss and to its total.
  HD void add_z_loss(double z_loss, double& loss, double& of_softmax) const {
    if (z_loss == 0) return;  // whose product with an infinite logarithm would be NaN
    const double log_of_sum = static_cast<double>(max) + static_cast<double>(log_sum);
    loss += z_loss * log_of_sum * log_of_sum;
    of_softmax += 2 * z_loss * log_of_sum;
  }
};

}  // namespace sotto
