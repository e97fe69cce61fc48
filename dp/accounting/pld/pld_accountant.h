// Accounting by privacy loss distributions: the numerical composition that comes as close to the
// true epsilon as asked. Koskela et al. (2020); Gopi, Lee and Wutschitz (2021);
// Doroshenko et al. (2022). Method and proofs in docs/accounting.md, section 5.
#pragma once

#include <map>

#include "dp/accounting/accountant.h"
#include "dp/accounting/pld/composition.h"

namespace sotto {

// Upper bounds are never below the truth and lower bounds never above it. They are typically 1e-4
// of epsilon apart, some 1e-3 for many kinds of releases or above 1e6 of them, and more beyond 1e8;
// of batches of a fixed size, up to a third for many releases (the lower bound is of one of two
// directions). docs/accounting.md names the corners where they are far apart. Answers remember work
// for the next one: an accountant is for one thread at a time. The PRV accountant derives from it.
class PldAccountant : public Accountant {
 public:
  explicit PldAccountant(NeighboringRelation relation = NeighboringRelation::add_or_remove_one);

  using Accountant::delta;
  using Accountant::epsilon;
  // Bounds of the true epsilon for this delta and of the true delta for this epsilon. Without noise
  // both sides say infinity and 1. Throw std::invalid_argument unless delta is in (0, 1) and
  // epsilon finite and >= 0.
  double epsilon(double delta, Bound bound) const;
  double delta(double epsilon, Bound bound) const;

 protected:
  PldAccountant(AccountantKind kind, NeighboringRelation relation, Discretization rounding)
      : Accountant(kind, relation), composition_(relation, rounding) {}

 private:
  void charge(const Event& event, std::int64_t count) override;
  double charged_epsilon(double delta) const override {
    return charged_epsilon(delta, Bound::upper);
  }
  double charged_delta(double epsilon) const override {
    return charged_delta(epsilon, Bound::upper);
  }
  double charged_epsilon(double delta, Bound bound) const;
  double charged_delta(double epsilon, Bound bound) const;
  double delta_in_corners(double epsilon, double answer) const;
  bool unsampled(Bound bound) const;
  double noise(const Event& event) const;
  double gaussian_noise() const;
  double total_variation() const;

  bool without_noise_ = false;
  std::map<Event, std::int64_t> history_;
  mutable PldComposition composition_;
};

}  // namespace sotto
