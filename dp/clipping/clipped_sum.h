// What a clipper gives out: a sum with a known sensitivity, and facts about the batch.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "dp/sampling/sampler.h"

namespace sotto {

// A sum over units of gradients whose norms were bounded. Not private until a mechanism has
// released it, so its values cannot be read. Moved and used up, never copied.
class ClippedSum {
 public:
  ClippedSum(ClippedSum&&) = default;
  ClippedSum& operator=(ClippedSum&&) = default;
  // The most that one unit can change the sum by, in the L2 norm over all parameters, rounding
  // included.
  double sensitivity() const { return sensitivity_; }
  // The number of groups of parameters that were clipped.
  std::int64_t groups() const { return std::ssize(unclipped_); }
  // Whether there is a count of finite gradients.
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
  // Centered counts, of each group's units whose norm was within the bound, and of units whose
  // gradient was finite: the sum over all units of 1/2 where it was, and -1/2 where it was not.
  std::vector<double> unclipped_;
  std::optional<double> finite_;
  SampledBatch draw_;
};

// Facts about one logical batch, for people and tests. NOT private: they are exact functions of the
// data and must not be published.
struct ClipStatistics {
  std::vector<std::vector<double>> norms;    // [group][unit], before clipping
  std::vector<std::vector<double>> factors;  // [group][unit]
  std::int64_t not_finite = 0;  // units that contributed nothing because of NaN, Inf or overflow
  double loss_sum = 0;          // over the rows of units whose loss is finite
  std::int64_t units = 0;
};

}  // namespace sotto
