// From the norms of a physical batch's units to the factors that bound them: clip_factor.h, for all
// units of a group of parameters at once, and what is counted of them.
#pragma once

#include <vector>

#include "autograd/per_sample/per_sample_grad.h"
#include "kernels/host_device/clip_factor.h"

namespace sotto {

// What one group's gradients are multiplied by.
struct ClipFactors {
  std::vector<double> norms, values;  // one for each unit
  // Units whose summands are so much larger than the clip bound that they would swamp others in a
  // shared f32 sum (GradientNorm::apart): they are summed separately, in f64.
  std::vector<std::size_t> summed_separately;
  // Whether no sum of these gradients times these can overflow, whatever the order of its terms.
  bool cannot_overflow = false;
};

// The norms of one group's gradient, for each unit.
class UnitNorms {
 public:
  explicit UnitNorms(std::int64_t units);
  // Adds one more parameter's gradient, of a loss times `scale`, a power of two.
  void add(const std::vector<PerSampleGrad>& uses, NormMethod norm_method, double scale);
  // Returns the factors for a bound with this margin for rounding, and gradients of a loss times
  // `scale`.
  ClipFactors factors(const ClipRule& rule, double bound, double margin, double scale) const;

 private:
  struct Columns;
  template <ClipRule::Kind kind>
  void factors_by(const ClipRule& rule, double bound, double margin, double scale,
                  Columns& y) const;

  std::vector<double> squares_, error_bounds_, term_norms_;  // as in GradientNorm
};

struct UnitCounts {
  std::ptrdiff_t within = 0;  // units whose norm is within the bound
  std::ptrdiff_t lost = 0;    // units with a factor of 0, though their norm is not 0
};
// Counts a group's units; finite[n] becomes 0 where a norm is not finite.
UnitCounts count_units(const std::vector<double>& norms, const std::vector<double>& factors,
                       double bound, std::vector<char>& finite);

// The sum of the values that are finite.
double finite_sum(const std::vector<double>& values);

}  // namespace sotto
