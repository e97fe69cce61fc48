// One release with its losses on a lattice: more telling than the true one (an upper bound of
// delta) or less (a lower bound). Proofs in docs/accounting.md, section 5.
#pragma once

#include <cstdint>
#include <vector>

#include "dp/accounting/pld/dominating_pair.h"

namespace sotto {

// Which side of the truth a number is on.
enum class Bound { upper, lower };

// Losses lie on a lattice of this spacing; those used are all points up to `dense` spacings from
// the centre, then every second, every fourth and so on, so that the distance between neighbours
// is about 1/dense of the distance to the centre.
struct LossLattice {
  double spacing = 0;
  std::int64_t dense = 1;  // a power of two

  auto operator<=>(const LossLattice&) const = default;
};

// The loss under P is offset + index * spacing with the atom's mass, infinite with mass `escaped`;
// indices increase. Under Q an atom has its mass times e^{-loss}.
struct DiscretePld {
  struct Atom {
    std::int64_t index = 0;
    double log_mass = 0;
  };
  double offset = 0;
  double spacing = 0;
  double infinity_mass = 0;
  // Of losses moved with their mean kept (mean_matched): loss - atom's loss lies in an interval of
  // this width, and its mean is within `drift` of 0.
  double width = 0, drift = 0;
  std::vector<Atom> atoms;

  double loss(const Atom& atom) const { return offset + static_cast<double>(atom.index) * spacing; }
};

// Every mass differs from its defining integral by less than this part of itself.
inline constexpr double mass_tolerance = 1e-12;

// The loss of (P, Q), or mirrored, of (Q, P), on a lattice.
// upper: connects the dots (Doroshenko et al. 2022, section 3). Mass between two lattice points
// goes to both so that P and Q keep theirs; the curve delta(e^epsilon) becomes the polygon through
// its values there.
// lower, for pairs whose loss is nowhere constant: merges runs of outcomes whose joint loss is a
// lattice point, that is, forgets which of them happened; the curve becomes a polygon of tangents.
DiscretePld discretise(const DominatingPair& pair, const LossLattice& lattice, Bound bound,
                       bool mirrored);

// Moves every finite loss to the nearest point of a lattice of this spacing, placed so that the
// mean stays (Gopi, Lee and Wutschitz 2021, algorithm 2, DiscretizePRV). Neither bound by itself.
DiscretePld mean_matched(const DominatingPair& pair, double spacing, bool mirrored);

// ln E_P[e^{tilt loss}; loss finite]
double log_moment(const DiscretePld& pair, double tilt);

}  // namespace sotto
