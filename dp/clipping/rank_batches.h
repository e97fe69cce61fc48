// A batch whose units several ranks clip: what they tell each other of their parts. For the sources
// of this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "autograd/per_sample/grouping.h"
#include "core/ranks/ranks.h"
#include "nn/optim/shard_buckets.h"

namespace sotto::inline dp {

class Clipper;

// The place of a rank's units among those of all ranks, which are in the order of ranks.
struct OwnUnits {
  std::size_t first = 0, of_all_ranks = 0;
};

// What the ranks tell each other of their parts, under way.
class PartsOfBatch {
 public:
  // Collective: this rank has `units` units.
  PartsOfBatch(const Clipper& clipper, std::size_t units, Ranks& ranks);
  // Waits for the others. Throws std::invalid_argument if a rank clips with other bounds, another
  // loss scale, another sensitivity or other values of the parameters than rank 0.
  OwnUnits own_units();

 private:
  int rank_;
  std::vector<double> own_;
  std::vector<std::vector<double>> all_;
  Pending pending_;
};

// The sums of a batch that leave for their owners while it is clipped.
struct SharedBatch {
  SharedBatch(const Clipper& clipper, std::vector<std::int64_t> units,
              const std::shared_ptr<const nn::Shards>& shards);

  // Throws SystemFailure if a physical batch cannot be computed again, since parts of its units'
  // gradients have left.
  void check_repeatable(const Grouping* grouping) const;

  std::vector<std::int64_t> units;  // of this rank
  PartsOfBatch parts;
  nn::SumsToOwners sums;
};

// Adds up the ranks' counts, which are multiples of 1/2, on rank 0; the others get zeros.
// Collective.
std::vector<double> counts_on_rank_0(Ranks& ranks, const std::vector<double>& own);

}  // namespace sotto::inline dp
