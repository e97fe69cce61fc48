// The privacy loss distribution of one release on a lattice: it dominates the true one (an upper
// bound of delta) or is dominated by it (a lower bound). Proofs in
// docs/appendix/proofs-accounting.md, section 5.
#pragma once

#include <cstdint>
#include <vector>

#include "dp/accounting/pld/bound.h"
#include "dp/accounting/pld/dominating_pair.h"

namespace sotto {

// The rule by which losses between lattice points are moved to lattice points.
enum class Discretization {
  connect_the_dots,  // each release errs to the side of the bound: errors add up
  // to the nearest point: errors grow like the root of the number, and are bounded afterwards
  mean_matched,
};

// A lattice of losses: all points up to `dense` spacings from the centre are used, then every
// second, every fourth and so on, so that the distance between adjacent points is about 1/dense of
// the distance to the centre.
struct LossLattice {
  double spacing = 0;
  std::int64_t dense = 1;  // a power of two

  auto operator<=>(const LossLattice&) const = default;
};

// A discrete PLD. Under P the loss is offset + index * spacing with the atom's mass, and infinite
// with mass infinity_mass; indices increase. Under Q an atom has its mass times e^{-loss}.
struct DiscretePld {
  struct Atom {
    std::int64_t index = 0;
    double log_mass = 0;
  };
  double offset = 0;
  double spacing = 0;
  double infinity_mass = 0;
  // For mean_matched: loss - (the atom's loss) lies in an interval of this width, and its mean is
  // within `drift` of 0.
  double width = 0, drift = 0;
  std::vector<Atom> atoms;

  double loss(const Atom& atom) const { return offset + static_cast<double>(atom.index) * spacing; }
};

// The relative error of every mass, compared with the integral that defines it.
inline constexpr double mass_tolerance = 1e-12;

// Discretizes the loss of (P, Q), or mirrored, of (Q, P). upper: connects the dots (Doroshenko et
// al. 2022, section 3). Mass between two lattice points is divided between them so that P and Q
// keep their totals; the curve delta(e^epsilon) becomes the polygon through its values at the
// points. lower, for pairs whose loss is nowhere constant: merges intervals of outcomes whose joint
// loss is a lattice point, that is, drops which of them occurred; the curve becomes a polygon of
// tangents.
DiscretePld discretise(const DominatingPair& pair, const LossLattice& lattice, Bound bound,
                       bool mirrored);

// Moves every finite loss to the nearest point of a lattice with this spacing, which is placed so
// that the mean stays (Gopi, Lee and Wutschitz 2021, algorithm 2, DiscretizePRV). The result is
// neither an upper nor a lower bound.
DiscretePld mean_matched(const DominatingPair& pair, double spacing, bool mirrored);

// ln E_P[e^{tilt loss}; loss finite]
double log_moment(const DiscretePld& pair, double tilt);

}  // namespace sotto
