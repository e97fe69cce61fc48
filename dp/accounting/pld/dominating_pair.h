// The dominating pair of one release: the two output distributions, as densities on a line, that
// are hardest to confuse among those of neighbouring data sets; and integrals over them. Derivation
// in docs/appendix/proofs-accounting.md, section 5.
#pragma once

#include <algorithm>
#include <cmath>

#include "dp/event.h"
#include "dp/numerics/gauss_legendre.h"

namespace sotto {

// The density p(x) and the privacy loss ln p(x)/q(x) at a point.
struct LossPoint {
  double density = 0;
  double loss = 0;
};

// The difference between neighbouring batches, as a pair of densities with M = (1-r) N(0, s^2) + r
// N(1, s^2).
enum class Adjacency {
  add_remove,  // P = M, Q = N(0, s^2) (Zhu, Dong and Wang 2022, theorem 11)
  replace,     // of Poisson batches: P = M, Q = (1-r) N(0, s^2) + r N(-1, s^2)
  // fixed-size batches, at distance 1: M and N(0, s^2) where M is larger, else N(1, s^2) and (1-r)
  // N(1, s^2) + r N(0, s^2); the missing mass of each is one point without loss (Zhu, Dong and Wang
  // 2022, proposition 30)
  replace_fixed_size,
};

// One release of the sampled Gaussian mechanism.
struct SampledGaussian {
  Adjacency change = Adjacency::add_remove;
  double rate = 1;   // r
  double noise = 0;  // s

  auto operator<=>(const SampledGaussian&) const = default;
};

// The loss ln p(x)/q(x) increases with x. Every other pair of outputs of neighbouring data sets is
// dominated by (P, Q) or by (Q, P), which for replaced records is the same pair reflected.
class DominatingPair {
 public:
  // Requires a sampling rate in (0, 1], a noise from 0.01 to 1e9, and tail_mass_truncation >
  // 1e-300, the mass to truncate at each end of the line.
  DominatingPair(const SampledGaussian& release, double tail_mass_truncation);

  LossPoint at(double x) const;
  double loss(double x) const;
  // The loss in the middle of P, or of its larger component.
  double centre() const { return within() ? 0 : loss(rate_ > 0.5 ? 1 : 0); }
  // The mass, of P and of Q, of the one point whose loss is 0; integrals do not include it.
  double without_loss() const;
  // The position at which the loss has this value; -infinity below its range.
  double position(double loss) const;

  // The mass of P (and of Q where (Q, P) matters) outside [lowest, highest] is at most
  // infinity_mass().
  double lowest() const { return lowest_; }
  double highest() const { return highest_; }
  double infinity_mass() const { return 2 * tail_mass_truncation_; }

  // Calls visit(mass, loss) for the points of a quadrature rule of P on [from, to]. Sums over the
  // points are integrals, to about 14 digits, of functions as smooth as the loss.
  template <class Visit>
  void integrate(double from, double to, const Visit& visit) const {
    constexpr double narrow = 1.0 / 16, very_narrow = 1.0 / 64;
    const auto at_point = [&](double weight, double x) {
      const LossPoint point = at(x);
      visit(weight * point.density, point.loss);
    };
    while (from < to) {
      const double length = piece(from), end = std::min(to, from + length);
      if (end - from < very_narrow * length) {
        visit_points(gauss_legendre_3, from, end, at_point);
      } else if (end - from < narrow * length) {
        visit_points(gauss_legendre_4, from, end, at_point);
      } else {
        visit_points(gauss_legendre_8, from, end, at_point);
      }
      from = end;
    }
  }

 private:
  bool within() const { return change_ == Adjacency::replace_fixed_size; }
  double log_ratio(double x) const;
  double piece(double x) const;
  double mass_above(double x) const;

  static constexpr double middle = 0.5;  // where N(0, s^2) and N(1, s^2) are equal

  Adjacency change_;
  double rate_, sigma_;
  double tail_mass_truncation_, lowest_, highest_, turn_, log_norm_;
};

}  // namespace sotto
