// A batch whose units several ranks clip: their messages about their parts. For the sources of this
// folder.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/ranks/ranks.h"
#include "dp/sampling/sampler.h"
#include "nn/optim/shard_buckets.h"

namespace sotto {

class Clipper;

// The message of each rank about its part, under way.
class PartsOfBatch {
 public:
  // Collective: `own` are the units that this rank clips.
  PartsOfBatch(const Clipper& clipper, std::span<const std::int64_t> own, Ranks& ranks);
  // Waits for the others. Throws std::invalid_argument on every rank if a drawn unit is clipped by
  // several ranks or by none, or if a rank clips with other bounds, another loss scale, another
  // sensitivity or other values of the parameters than rank 0.
  void check_division(const UnitDigest& drawn);

 private:
  // One rank's message.
  struct Part {
    UnitDigest units;
    std::uint64_t settings = 0;  // a hash
  };
  Part own_;
  std::vector<Part> all_;
  Pending pending_;
};

// The sums of a batch that leave for their owners while it is clipped. When memory runs out
// afterwards, the batch is computed once more: its sums are the same, to the bit.
struct SharedBatch {
  SharedBatch(const Clipper& clipper, std::vector<std::int64_t> units,
              std::shared_ptr<const nn::Shards> owners);

  std::shared_ptr<const nn::Shards> shards;
  std::vector<std::int64_t> units;  // of this rank
  PartsOfBatch parts;
  nn::SumsToOwners sums;
};

// Adds up the ranks' counts, which are multiples of 1/2, on rank 0; the others get zeros.
// Collective.
std::vector<double> counts_on_rank_0(Ranks& ranks, const std::vector<double>& own);

}  // namespace sotto
