// The sum of many independent discrete losses, exponentially tilted so that what is asked for lies
// at its centre, and what it says about delta. Proofs in docs/accounting.md, section 5.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "dp/accounting/pld/discrete_pld.h"
#include "dp/accounting/pld/discretization.h"

namespace sotto {

// The size of a transform for so many points: the smallest 2^k or 3 * 2^k that is at least `count`.
std::int64_t transform_size(double count);

// A discrete loss under the tilted measure: the Fourier transform of all but its likeliest value at
// the non-negative frequencies.
struct TiltedLoss {
  std::vector<std::complex<double>> spectrum;
  double rest = 0;           // the probability of all but the likeliest value
  double log_origin = 0;     // ln of that of the likeliest
  double offset = 0;         // the likeliest value; others are whole numbers of spacings away
  double log_moment = 0;     // ln E[e^{tilt loss}]
  double infinity_mass = 0;  // the probability that it is infinite
};

// The sum of many such losses, of which further ones can be added.
class TiltedSum {
 public:
  // For `size` points of a lattice: 2^k or 3 * 2^k, at least 4.
  TiltedSum(double tilt, double spacing, std::int64_t size);

  // A loss on a lattice of this spacing, ready to be added.
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

  // Probabilities of the tilted sum on the lattice, those a multiple of `size` apart added up:
  // index i stands for offset + spacing * (i + size * (whole numbers)).
  std::vector<double> folded() const;
  // No entry of folded() is further than this from its exact value.
  double rounding() const;

 private:
  double tilt_, spacing_;
  std::int64_t size_;
  double offset_ = 0, count_ = 0, spread_ = 0, factors_ = 0, log_moment_ = 0, log_kept_ = 0;
  std::vector<std::complex<double>> product_;
};

// delta as a function of epsilon near one place, from one side.
class DeltaCurve {
 public:
  DeltaCurve(const TiltedSum& sum, const LossWindow& window, Bound bound);

  // A bound of delta at an epsilon >= 0.
  double delta(double epsilon) const;
  // A bound of the smallest epsilon for this delta; never below 0. An upper bound is infinite when
  // that lies above the window.
  double epsilon(double delta) const;

 private:
  double point(std::int64_t index) const { return first_ + static_cast<double>(index) * spacing_; }
  double delta_at(std::int64_t index) const;
  double delta_at(std::int64_t index, double epsilon) const;
  double add_escaped(double delta) const;

  Bound bound_;
  double first_, spacing_, tilt_, log_scale_, escaped_;
  std::vector<double> scaled_;  // delta e^{tilt epsilon} / moment at the points of the window
};

}  // namespace sotto
