// delta of many releases of which one alone may decide: a loss that is rare and large is added up
// apart from the sum of the others. Proof in docs/accounting.md, section 5.
#pragma once

#include <optional>
#include <vector>

#include "dp/accounting/pld/discretization.h"
#include "dp/accounting/pld/tilted_sum.h"

namespace sotto {

// Where one loss may decide: losses above the limit are so rare that two of them take no part that
// matters of delta, and the answer is about this epsilon and delta.
struct JumpEstimate {
  double limit = 0, epsilon = 0, delta = 0;
  bool decide = false;  // whether the sum of many losses surely says less
};

// Nothing where the sum of many losses decides.
std::optional<JumpEstimate> jump_estimate(const std::vector<SampledReleases>& releases,
                                          const PldQuery& question);

// Bounds of delta from sums of the losses up to a limit, and the losses above it.
class LargeLossCurve {
 public:
  // What a release less takes from the sum: the sum, `shift` further down and divided by `mass`, is
  // above the one without it, whose probability is at least `kept`.
  struct Less {
    double shift = 0, mass = 1, kept = 0;
  };
  // `sum` is that of all releases, accurate near the answer, `others` is that beside a jump,
  // accurate near 0.
  LargeLossCurve(const DeltaCurve& sum, const DeltaCurve& others, Bound bound, const Less& less)
      : sum_(sum), others_(others), bound_(bound), less_(less) {}

  // A loss above the limit, and how many releases have it on average.
  void add(double loss, double expected);

  // A bound of delta at an epsilon >= 0.
  double delta(double epsilon) const;
  // A bound of the smallest epsilon for this delta; infinite for an upper bound that is above every
  // number looked at.
  double epsilon(double delta) const;

 private:
  struct Jump {
    double loss, expected;
  };
  double of_others(double epsilon) const;

  DeltaCurve sum_, others_;
  Bound bound_;
  Less less_;
  double expected_ = 0, weight_ = 0;
  std::vector<Jump> jumps_;
};

}  // namespace sotto
