// A batch whose units several ranks clip: what they tell each other of their parts. For the sources
// of this folder.
#pragma once

#include <cstddef>
#include <vector>

namespace sotto {
class Ranks;
}

namespace sotto::inline dp {

class Clipper;

// The place of a rank's units among those of all ranks, which are in the order of ranks.
struct OwnUnits {
  std::size_t first = 0, of_all_ranks = 0;
};

// Collective. Throws std::invalid_argument if a rank clips with other bounds, another loss scale,
// another sensitivity or other values of the parameters than rank 0.
OwnUnits own_units(const Clipper& clipper, Ranks& ranks);

// Adds up the ranks' counts, which are multiples of 1/2, on rank 0; the others get zeros.
// Collective.
std::vector<double> counts_on_rank_0(Ranks& ranks, const std::vector<double>& own);

}  // namespace sotto::inline dp
