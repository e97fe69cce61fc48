// The agreement of a run's ranks: rank 0 decides each step, and every element of the parameters has
// one owner. One process is a run of one rank, for which nothing is sent.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/ranks/collectives.h"
#include "dp/engine/unit_owners.h"
#include "dp/sampling/remote_sampler.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/shards.h"

namespace sotto {

// Rank 0's decisions on a step.
struct StepOrder {
  static auto fields(auto& self) {
    return std::tie(self.steps_made, self.noise_multiplier, self.loss_scale, self.bounds);
  }
  std::int64_t steps_made = 0;
  double noise_multiplier = 0;
  double loss_scale = 1;
  std::vector<double> bounds = {};
};

using MechanismState = std::map<std::string, Tensor>;

class Agreement {
 public:
  // Divides the optimizer's state among several ranks, and connects their GPUs. Collective.
  Agreement(std::shared_ptr<Ranks> ranks, nn::Optimizer& optimizer);

  Ranks& ranks() const { return *ranks_; }
  bool alone() const { return ranks_->size() == 1; }
  bool leads() const { return ranks_->rank() == 0; }
  // The owners of the elements; null for one rank, which owns all.
  const std::shared_ptr<const nn::Shards>& shards() const { return shards_; }
  // The sampler for this rank: on rank 0 the given one.
  std::unique_ptr<Sampler> sampler_for(std::unique_ptr<Sampler> sampler) const;

  // Rank 0 calls `decide` before it draws; the other ranks call `follow` with the order they get.
  struct Draw {
    std::string_view place;  // for people
    std::function<StepOrder()> decide;
    std::function<void(const StepOrder&)> follow = [](const StepOrder&) {};
  };
  // Returns the batch, with all its units on rank 0 and on another rank its own. Collective:
  // `sampler`, one of sampler_for(), draws on rank 0. An error of `decide` or the draw is thrown on
  // every rank; one of `follow` ends the run.
  SampledBatch draw(const Draw& draw, Sampler& sampler, const UnitOwners& owners) const;

  // The state of a mechanism (Mechanism::state) for a checkpoint: whole on rank 0, from each rank's
  // own; and the reverse, each rank's own from rank 0's. The parameters are those of the sums.
  // Collective.
  MechanismState whole(MechanismState own, const std::vector<const Parameter*>& parameters) const;
  MechanismState own(const MechanismState& whole,
                     const std::vector<const Parameter*>& parameters) const;
  // Throws std::invalid_argument unless a mechanism's whole state has a memory for the parameters,
  // or none. Local.
  static void check_whole(const MechanismState& whole,
                          const std::vector<const Parameter*>& parameters);

 private:
  MechanismState own_of_several(const MechanismState& whole,
                                const std::vector<const Parameter*>& parameters) const;

  std::shared_ptr<Ranks> ranks_;
  std::shared_ptr<const nn::Shards> shards_;
};

}  // namespace sotto
