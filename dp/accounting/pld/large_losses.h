// Bounds on delta for many releases if a single large loss may decide it: rare large losses are
// counted apart from the sum of all further losses. Proof in docs/appendix/proofs-accounting.md,
// section 5.
#pragma once

#include <optional>
#include <vector>

#include "dp/accounting/pld/pld_planner.h"
#include "dp/accounting/pld/tilted_sum.h"

namespace sotto {

// A composition in which one loss may decide: losses above `limit` are so rare that the event of
// two of them is a negligible part of delta; the answer is near this epsilon and delta.
struct LargeLossEstimate {
  double limit = 0, epsilon = 0, delta = 0;
  bool decide = false;  // whether the sum of the other losses surely bounds less
};

// Returns nullopt if the sum of many losses decides.
std::optional<LargeLossEstimate> large_loss_estimate(const std::vector<SampledReleases>& releases,
                                                     const PldQuery& question);

// A loss above a limit, and the expected number of releases that have it.
struct LargeLoss {
  double loss = 0, expected = 0;
};

// Bounds delta by the sum of the losses up to a limit, and the losses above it, counted one at a
// time.
class LargeLossCurve {
 public:
  // Bounds the composition of n - 1 releases by that of n: D_{n-1}(eps) <= D_n(eps - shift) / mass.
  // `kept` is a lower bound on the probability that all losses of the n - 1 releases are up to the
  // limit.
  struct Less {
    double shift = 0, mass = 1, kept = 0;
  };
  // `sum` bounds all releases and is accurate near the answer; `others` bounds the releases besides
  // one with a large loss and is accurate near 0.
  LargeLossCurve(const DeltaCurve& sum, const DeltaCurve& others, Bound bound, const Less& less)
      : sum_(sum), others_(others), bound_(bound), less_(less) {}

  // Adds a loss above the limit.
  void add(const LargeLoss& large);

  // A bound on delta at an epsilon >= 0.
  double delta(double epsilon) const;
  // A bound on the smallest epsilon for this delta; an upper bound is infinite above 1e12.
  double epsilon(double delta) const;

 private:
  double of_others(double epsilon) const;

  DeltaCurve sum_, others_;
  Bound bound_;
  Less less_;
  double expected_ = 0, weight_ = 0;
  std::vector<LargeLoss> large_losses_;
};

}  // namespace sotto
