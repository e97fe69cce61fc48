// Samples of losses and the cumulants of their sums. They are estimates: no bound depends on them.
#pragma once

#include <vector>

#include "dp/accounting/pld/dominating_pair.h"

namespace sotto {

// The loss of one release under P, as weighted points.
struct LossSamples {
  explicit LossSamples(const DominatingPair& pair);
  // The points with losses up to `loss`.
  LossSamples up_to(double loss) const;

  std::vector<double> weights, losses;  // losses increase
  double centre = 0;                    // the loss in the middle
};

// `count` releases of one kind.
struct SampledReleases {
  const LossSamples* samples = nullptr;
  double count = 0;
};

// The cumulants of a tilted sum of losses: ln E[e^{tilt loss}] and its first two derivatives, mean
// and variance. `spread` and `square` are the tilted sums of E|loss - centre| and E(loss -
// centre)^2.
struct Cumulants {
  double value = 0, mean = 0, variance = 0;
  double spread = 0, square = 0;
};

// The cumulants of a composition as functions of the tilt.
class SampledCumulants {
 public:
  // For losses of (P, Q), or mirrored, of (Q, P).
  SampledCumulants(std::vector<SampledReleases> releases, bool mirrored);

  Cumulants at(double tilt) const;
  // The number of releases.
  double count() const { return count_; }
  // The typical distance of one loss from the centre.
  double typical() const { return typical_; }

 private:
  std::vector<SampledReleases> releases_;
  bool mirrored_;
  double count_ = 0, typical_ = 0;
  double value_at_0_ = 0;  // the samples' error at tilt 0, where the true value is 0
};

}  // namespace sotto
