// Accounting by privacy loss distributions: numerical composition that comes as close to the true
// epsilon as requested. Koskela et al. (2020); Gopi, Lee and Wutschitz (2021); Doroshenko et al.
// (2022). Method and proofs in docs/appendix/proofs-accounting.md, section 5.
#pragma once

#include <map>
#include <memory>

#include "dp/accounting/accountant.h"
#include "dp/accounting/pld/bound.h"

namespace sotto {

enum class Discretization;
class PldComposition;

// The most accurate accountant. Upper bounds are never below the truth and lower bounds never above
// it. They typically differ by a relative 1e-4, by some 1e-3 for many kinds of releases or above
// 1e6 of them, and by more beyond 1e8; for fixed-size batches, by up to a third for many releases
// (the lower bound is of one of two directions). docs/appendix/proofs-accounting.md names the cases
// in which they are far apart. Answers reuse the work of earlier ones: one thread at a time may use
// an accountant.
class PldAccountant : public Accountant {
 public:
  explicit PldAccountant(NeighboringRelation relation = NeighboringRelation::add_or_remove_one);
  PldAccountant(PldAccountant&&) noexcept;
  PldAccountant& operator=(PldAccountant&&) noexcept;
  ~PldAccountant() override;

  using Accountant::delta;
  using Accountant::epsilon;
  // Bounds on the true epsilon for this delta, and on the true delta for this epsilon. Without
  // noise both bounds are infinity and 1. Throw std::invalid_argument unless delta is in (0, 1) and
  // epsilon finite and >= 0.
  double epsilon(double delta, Bound bound) const;
  // The upper or the lower bound on delta.
  double delta(double epsilon, Bound bound) const;

 protected:
  // `rounding` is how losses are put on the lattice (PrvAccountant rounds otherwise).
  PldAccountant(AccountantKind kind, NeighboringRelation relation, Discretization rounding);

 private:
  void charge(const Event& event, std::int64_t count) override;
  double charged_epsilon(double delta) const override;
  double charged_delta(double epsilon) const override;
  double charged_epsilon(double delta, Bound bound) const;
  double charged_delta(double epsilon, Bound bound) const;

  bool without_noise_ = false;
  std::map<Event, std::int64_t> history_;
  std::unique_ptr<PldComposition> composition_;
};

}  // namespace sotto
