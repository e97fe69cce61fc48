// The sum of many independent discrete losses, exponentially tilted so that the answer lies near
// its mean, and the curve of delta that follows from it. Proofs in
// docs/appendix/proofs-accounting.md, section 5.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "dp/accounting/pld/discrete_pld.h"
#include "dp/accounting/pld/pld_planner.h"

namespace sotto {

// The size of a transform for `count` points: the smallest 2^k or 3 * 2^k that is at least `count`.
std::int64_t transform_size(double count);

// A discrete loss under the tilted measure: the Fourier transform, at the non-negative frequencies,
// of all but its most likely value.
struct TiltedLoss {
  std::vector<std::complex<double>> spectrum;
  double rest = 0;        // the probability of all but the most likely value
  double log_origin = 0;  // ln of the probability of the most likely value
  double offset = 0;  // the most likely value; every value is a whole number of spacings from it
  double log_moment = 0;     // ln E[e^{tilt loss}]
  double infinity_mass = 0;  // the probability that the loss is infinite
};

// The tilted sum of many independent losses; more can be added.
class TiltedSum {
 public:
  // For `size` points of a lattice: 2^k or 3 * 2^k, at least 4.
  TiltedSum(double tilt, double spacing, std::int64_t size);

  // Tilts and transforms a loss on a lattice of this spacing, for add().
  TiltedLoss tilted(const DiscretePld& pair) const;
  // Adds `count` > 0 independent losses of one kind.
  void add(const TiltedLoss& loss, double count);

  double tilt() const { return tilt_; }
  double spacing() const { return spacing_; }
  std::int64_t size() const { return size_; }
  double count() const { return count_; }
  double offset() const { return offset_; }
  double log_moment() const { return log_moment_; }
  // The probability that one of the losses is infinite.
  double infinity_mass() const { return -std::expm1(log_kept_); }

  // The probabilities of the tilted sum on the lattice, folded modulo `size`: index i stands for
  // offset + spacing * (i + k size) for all whole numbers k.
  std::vector<double> folded() const;
  // A bound on the absolute error of every entry of folded().
  double rounding() const;

 private:
  double tilt_, spacing_;
  std::int64_t size_;
  double offset_ = 0, count_ = 0, spread_ = 0, factors_ = 0, log_moment_ = 0, log_kept_ = 0;
  std::vector<std::complex<double>> product_;
};

// Bounds on delta at the points first + index * spacing of a window.
struct DeltaTable {
  double first = 0, spacing = 0, tilt = 0, log_scale = 0;
  double infinity_mass = 0;    // is added to every delta
  std::vector<double> scaled;  // delta e^{tilt epsilon} / moment at the points

  double point(std::int64_t index) const { return first + static_cast<double>(index) * spacing; }
  double delta(std::int64_t index) const { return delta(index, point(index)); }
  // delta from the mass above the point at `index`, evaluated at epsilon.
  double delta(std::int64_t index, double epsilon) const;
};

// A bound, from one side, on delta as a function of epsilon, within a window.
class DeltaCurve {
 public:
  DeltaCurve(const TiltedSum& sum, const LossWindow& window, Bound bound);

  // A bound on delta at an epsilon >= 0.
  double delta(double epsilon) const;
  // A bound on the smallest epsilon >= 0 for this delta. An upper bound is infinite if the epsilon
  // lies above the window.
  double epsilon(double delta) const;

 private:
  Bound bound_;
  DeltaTable table_;
};

}  // namespace sotto
