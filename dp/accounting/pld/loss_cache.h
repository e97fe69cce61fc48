// The losses of releases and their sums, kept for the answers of an accountant.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "dp/accounting/pld/discrete_pld.h"
#include "dp/accounting/pld/loss_samples.h"
#include "dp/accounting/pld/tilted_sum.h"

namespace sotto {

// The number of releases of each kind.
using ReleaseCounts = std::map<SampledGaussian, double>;

// The discretization of one direction, (P, Q) or mirrored, from one side, on a lattice.
struct PldSide {
  Bound bound = Bound::upper;
  bool mirrored = false;
  LossLattice lattice;

  auto operator<=>(const PldSide&) const = default;
};

// Computes losses and sums at their first use. For one more release of a known kind, only the
// spectra are multiplied again. References hold until the next call that is not const.
class LossCache {
 public:
  explicit LossCache(Discretization rounding);
  ~LossCache();

  Discretization rounding() const { return rounding_; }
  // The mass that is truncated at each end of every kind's distribution.
  double tail_mass_truncation() const { return tail_mass_truncation_; }
  // Sets it to at most this, in steps, so that similar queries share their work.
  void truncate_tails(double log_mass);

  // The samples of each kind. The functions below accept only kinds that were passed to it.
  std::vector<SampledReleases> sampled(const ReleaseCounts& counts);
  const DominatingPair& pair(const SampledGaussian& kind) const;
  // One thread at a time may ask for a kind.
  const DiscretePld& discrete(const SampledGaussian& kind, PldSide side);
  // ln E[e^{tilt loss}] of all the releases.
  double log_moment(const ReleaseCounts& counts, const PldSide& side, double tilt);
  // Their tilted sum, on `size` points.
  const TiltedSum& sum(const ReleaseCounts& counts, const PldSide& side, double tilt,
                       std::int64_t size);

 private:
  struct Entries;

  Discretization rounding_;
  double tail_mass_truncation_ = 0;
  std::unique_ptr<Entries> entries_;
};

}  // namespace sotto
