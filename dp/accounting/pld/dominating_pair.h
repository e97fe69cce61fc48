// The dominating pair of one release: the two output distributions, as densities on a line, that
// are hardest to confuse among those of neighbouring data sets; and integrals over them. Derivation
// in docs/appendix/proofs-accounting.md, section 5.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "dp/event.h"

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
  // Requires a sampling rate in (0, 1], a noise from 0.01 to 1e9, and a mass > 1e-300 to truncate
  // at each end of the line.
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
    while (from < to) {
      const double length = piece(from), end = std::min(to, from + length);
      if (end - from < very_narrow * length) {
        visit_piece(rule_of_3, from, end, visit);
      } else if (end - from < narrow * length) {
        visit_piece(rule_of_4, from, end, visit);
      } else {
        visit_piece(rule_of_8, from, end, visit);
      }
      from = end;
    }
  }

 private:
  // Gauss-Legendre rules on [-1, 1].
  struct Node {
    double position, weight;
  };
  static constexpr std::array<Node, 3> rule_of_3 = {
      {{-0.77459666924148338, 5.0 / 9}, {0, 8.0 / 9}, {0.77459666924148338, 5.0 / 9}}};
  static constexpr std::array<Node, 4> rule_of_4 = {{{-0.86113631159405258, 0.34785484513745386},
                                                     {-0.33998104358485626, 0.65214515486254614},
                                                     {0.33998104358485626, 0.65214515486254614},
                                                     {0.86113631159405258, 0.34785484513745386}}};
  static constexpr std::array<Node, 8> rule_of_8 = {{{-0.96028985649753623, 0.10122853629037626},
                                                     {-0.79666647741362674, 0.22238103445337447},
                                                     {-0.52553240991632899, 0.31370664587788729},
                                                     {-0.18343464249564980, 0.36268378337836198},
                                                     {0.18343464249564980, 0.36268378337836198},
                                                     {0.52553240991632899, 0.31370664587788729},
                                                     {0.79666647741362674, 0.22238103445337447},
                                                     {0.96028985649753623, 0.10122853629037626}}};

  template <class Rule, class Visit>
  void visit_piece(const Rule& rule, double from, double to, const Visit& visit) const {
    const double middle = 0.5 * (from + to), half = 0.5 * (to - from);
    for (const Node& node : rule) {
      const LossPoint point = at(middle + half * node.position);
      visit(half * node.weight * point.density, point.loss);
    }
  }

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
