// Accounting by privacy loss distributions: the numerical composition that comes as close to the
// true epsilon as asked. Koskela et al. (2020); Gopi, Lee and Wutschitz (2021);
// Doroshenko et al. (2022). Method and proofs in docs/accounting.md, section 5.
#pragma once

#include <map>

#include "sotto/dp/accountant.h"
#include "sotto/dp/pld_composition.h"

namespace sotto {

// Upper bounds are never below the truth and lower bounds never above it. They are typically 1e-4
// of epsilon apart, up to 1e-3 for many kinds of releases or above 1e6 of them, and more beyond
// 1e8; docs/accounting.md names the corners where they are far apart. Answers remember work for the
// next one: an accountant is for one thread at a time.
class PldAccountant final : public Accountant {
 public:
  explicit PldAccountant(Relation relation = Relation::add_or_remove_one);

  void compose(const Event& event, std::int64_t count = 1) override;
  double epsilon(double delta) const override { return epsilon(delta, Bound::upper); }
  double delta(double epsilon) const override { return delta(epsilon, Bound::upper); }
  std::string name() const override { return "pld"; }

  // Bounds of the true epsilon for this delta and of the true delta for this epsilon. Without noise
  // both sides say infinity and 1. Throw std::invalid_argument unless delta is in (0, 1) and
  // epsilon finite and >= 0.
  double epsilon(double delta, Bound bound) const;
  double delta(double epsilon, Bound bound) const;

 private:
  bool unsampled(Bound bound) const;
  double gaussian_noise() const;
  double total_variation() const;

  Relation relation_;
  bool without_noise_ = false;
  std::map<Event, std::int64_t> history_;
  mutable PldComposition composition_;
};

}  // namespace sotto
