// The result of a clipper: a sum with a known sensitivity, and statistics of the batch.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "dp/sampling/sampler.h"

namespace sotto {

// The sum of the clipped gradients of a batch's privacy units, made by Clipper::finish(). It is not
// private until a mechanism releases it, so its values cannot be read. It can be moved but not
// copied, and a release uses it up.
class ClippedSum {
 public:
  ClippedSum(ClippedSum&&) = default;
  ClippedSum& operator=(ClippedSum&&) = default;
  // The largest L2 distance, over all parameters, by which one unit can change the sum, rounding
  // included.
  double sensitivity() const { return sensitivity_; }
  // The number of clip groups.
  std::int64_t groups() const { return std::ssize(unclipped_); }
  // True if the number of finite gradients was counted (ClipOptions::count_finite).
  bool counts_finite() const { return finite_.has_value(); }
  const SampledBatch& draw() const { return draw_; }

 private:
  friend class Clipper;
  friend class Mechanism;
  ClippedSum(Gradients sums, double sensitivity, std::vector<double> unclipped,
             std::optional<double> finite, SampledBatch draw)
      : sums_(std::move(sums)),
        sensitivity_(sensitivity),
        unclipped_(std::move(unclipped)),
        finite_(finite),
        draw_(std::move(draw)) {}
  Gradients sums_;
  double sensitivity_;
  // Centered counts: the sum over all units of 1/2 if the condition holds and -1/2 if not. The
  // condition is, for each group, a norm within the bound; for finite_, a finite gradient.
  std::vector<double> unclipped_;
  std::optional<double> finite_;
  SampledBatch draw_;
};

}  // namespace sotto
