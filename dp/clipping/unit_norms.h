// The norms and clip factors of a physical batch's units, for one clip group at a time, and counts
// of them. kernels/host_device/clip_sample.h computes those of one unit.
#pragma once

#include <vector>

#include "autograd/per_sample/per_sample_grad.h"
#include "kernels/host_device/clip_factor.h"

namespace sotto {

// The clip factors of one group.
struct ClipFactors {
  std::vector<double> norms, values;  // norms and clip factors of the units
  // Units whose summands are so much larger than the clip bound that they would swamp others in a
  // shared f32 sum (GradientNorm::apart): they are summed separately, in f64.
  std::vector<std::size_t> summed_separately;
  // True if no sum of these gradients times their factors can overflow, in any order of its terms.
  bool cannot_overflow = false;
};

// The norms of each unit's gradient over the parameters of one group.
class UnitNorms {
 public:
  explicit UnitNorms(std::int64_t units);
  // Adds one parameter's gradient, that of a loss multiplied by `scale`, a power of two.
  void add(const std::vector<PerSampleGrad>& uses, NormMethod norm_method, double scale);
  // Returns the clip factors for a bound with this relative margin for rounding. `scale` is that of
  // the loss: a factor that would underflow when divided by it is 0.
  ClipFactors factors(const ClipRule& rule, double bound, double margin, double scale) const;

 private:
  std::vector<double> squares_, error_bounds_, term_norms_;  // as in GradientNorm
};

struct UnitCounts {
  std::ptrdiff_t within = 0;  // units whose norm is within the bound
  std::ptrdiff_t lost = 0;    // units with a factor of 0, though their norm is not 0
};
// Counts a group's units; finite[n] becomes 0 where a norm is not finite.
UnitCounts count_units(const std::vector<double>& norms, const std::vector<double>& factors,
                       double bound, std::vector<char>& finite);

// Returns the sum of the finite values.
double finite_sum(const std::vector<double>& values);

}  // namespace sotto
