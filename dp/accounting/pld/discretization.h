// Estimates of where a composition of losses must be looked at, and how finely. They decide
// tightness and time; no bound depends on them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dp/accounting/pld/discrete_pld.h"

namespace sotto {

// The loss of one release under P, as weighted points.
struct LossSamples {
  explicit LossSamples(const DominatingPair& pair);
  // Those up to a loss.
  LossSamples up_to(double loss) const;

  std::vector<double> weights, losses;  // losses increase
  double centre = 0;                    // the loss in the middle
};

// `count` releases of one kind.
struct SampledReleases {
  const LossSamples* samples = nullptr;
  double count = 0;
};

// ln E[e^{tilt loss}] of a sum of losses with its first two derivatives: mean and variance of the
// tilted sum. `spread` and `square` are the sums of E|loss - centre| and E(loss - centre)^2,
// tilted.
struct Cumulants {
  double value = 0, mean = 0, variance = 0;
  double spread = 0, square = 0;
};

// What is asked about a composition: epsilon for a delta, or delta for an epsilon.
struct PldQuery {
  enum class Of { epsilon, delta };
  Of of = Of::epsilon;
  double given = 0;  // the delta or the epsilon
};

// Where a sum is looked at: under the measure tilted by e^{tilt loss}, all but the part
// `outside_mass` of it lies in [low, high].
struct LossWindow {
  double low = 0;
  double high = 0;
  double outside_mass = 0;
};

// How to answer: which tilt, how fine a lattice, and how much of the tilted sum may be left out.
struct PldPlan {
  double tilt = 0;
  LossLattice lattice;
  LossLattice used;        // as fine as is affordable
  double finest = 0;       // a spacing that shows the shape of a single loss
  double deviation = 0;    // of the tilted sum
  double log_outside = 0;  // -ln of the mass left out on each side
  double width = 0;        // of the window, about
  double error = 0;        // of epsilon, relative to it or to the width of the sum

  auto operator<=>(const PldPlan&) const = default;
};

class PldPlanner {
 public:
  // For one of the two directions: losses of (P, Q), or mirrored, of (Q, P). The accuracy is
  // relative: of epsilon, or of delta for a question of delta.
  PldPlanner(std::vector<SampledReleases> releases, bool mirrored, const PldQuery& question,
             double accuracy);
  // For the losses of (P, Q) up to a limit, above which one loss may decide.
  PldPlanner(std::vector<SampledReleases> releases, const PldQuery& question);

  // From an estimate of the answer by the saddle point of its Laplace transform.
  PldPlan first() const;
  // For an answer near this epsilon and delta.
  PldPlan near(double epsilon, double delta) const;
  // For what many losses add to one above the limit.
  PldPlan at_rest(double limit, double delta) const;
  // After an answer that this plan gave: a better plan, or the same one when it did well enough.
  PldPlan next(const PldPlan& plan, double answer) const;

 private:
  Cumulants at(double tilt) const;
  double tilt_for_delta(double delta) const;
  double tilt_for_epsilon(double epsilon) const;
  double deviation(const Cumulants& c) const;
  PldPlan view(double tilt, double epsilon, double log_delta) const;
  PldPlan shortest(double tilt, double epsilon, double log_delta) const;
  PldPlan plan(double tilt, double epsilon, double log_delta) const;

  std::vector<SampledReleases> releases_;
  bool mirrored_;
  PldQuery question_;
  double accuracy_;
  bool jumps_ = false;
  double counts_ = 0, value_at_0_ = 0;
  double typical_ = 0;  // distance of one loss from the centre
};

// Where the sum of losses lies that a plan is for, by Chernoff bounds of the tilted sum to both
// sides: from ln E[e^{tilt loss}] of the sum on its lattice.
LossWindow tilted_window(const std::function<double(double)>& log_moment, const PldPlan& plan,
                         double spacing);

// How many lattice points a window needs, and how many are too many.
double lattice_points(const LossWindow& window, double spacing);
inline constexpr double most_lattice_points = 1 << 21;

// ln of the largest value of (1 - e^{-t}) e^{-tilt t} over t >= 0.
double log_largest_weight(double tilt);

}  // namespace sotto
