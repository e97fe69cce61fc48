// Estimates of where, and how finely, a composition of losses must be computed. They decide
// tightness and time; no bound depends on them.
#pragma once

#include <functional>
#include <vector>

#include "dp/accounting/pld/discrete_pld.h"
#include "dp/accounting/pld/loss_samples.h"
#include "dp/accounting/pld/pld_query.h"

namespace sotto {

// The interval [low, high] that contains a sum's tilted measure (weighted by e^{tilt loss}) except
// for the mass `outside_mass`.
struct LossWindow {
  double low = 0;
  double high = 0;
  double outside_mass = 0;
};

// The plan of an answer: the tilt, the lattice, and the mass that may lie outside the window.
struct PldPlan {
  double tilt = 0;
  LossLattice lattice;
  LossLattice used;        // as fine as is affordable
  double finest = 0;       // the spacing that resolves a single loss
  double stddev = 0;       // of the tilted sum
  double log_outside = 0;  // -ln of the mass outside on each side
  double width = 0;        // approximate, of the window
  double error = 0;        // of epsilon, absolute

  auto operator<=>(const PldPlan&) const = default;
};

// Makes plans for one direction of a composition.
class PldPlanner {
 public:
  // For losses of (P, Q), or mirrored, of (Q, P). `accuracy` is relative: to epsilon, or to delta
  // if the query is for delta.
  PldPlanner(std::vector<SampledReleases> releases, bool mirrored, const PldQuery& question,
             double accuracy);
  // For the losses of (P, Q) up to a limit, if one loss above it may decide.
  PldPlanner(std::vector<SampledReleases> releases, const PldQuery& question);

  // A plan from the saddle-point approximation of the answer.
  PldPlan first() const;
  // A plan for an answer near this epsilon and delta.
  PldPlan near(double epsilon, double delta) const;
  // A plan for the sum of the losses besides one above the limit.
  PldPlan at_rest(double limit, double delta) const;
  // Given the answer of a plan: a better plan, or the same one if it was good enough.
  PldPlan next(const PldPlan& plan, double answer) const;

 private:
  PldPlan plan(double tilt, double epsilon, double log_delta) const;

  SampledCumulants cumulants_;
  PldQuery question_;
  double accuracy_;
  bool large_losses_ = false;
};

// The window of a plan, by Chernoff bounds of the tilted sum to both sides. `log_moment` is ln
// E[e^{tilt loss}] of the sum on its lattice.
LossWindow tilted_window(const std::function<double(double)>& log_moment, const PldPlan& plan,
                         double spacing);

// The number of lattice points that a window needs, and the maximum that is computed.
double lattice_points(const LossWindow& window, double spacing);
inline constexpr double max_lattice_points = 1 << 21;

// ln of the largest value of (1 - e^{-t}) e^{-tilt t} over t >= 0.
double log_largest_weight(double tilt);

}  // namespace sotto
