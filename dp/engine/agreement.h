// An engine's part of a run on several ranks: what rank 0 decides in each step and tells the
// others, and the division of the parameters.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/ranks/ranks.h"
#include "dp/engine/unit_owners.h"
#include "dp/sampling/told_sampler.h"
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

// The progress of the run.
struct RunProgress {
  std::int64_t steps_made = 0;
  double first_noise = 0;
  bool may_step = false;  // within the target epsilon
};

using MechanismState = std::map<std::string, Tensor>;

class SharedRun {
 public:
  // Divides the optimizer's state, and connects the ranks' GPUs. Collective.
  SharedRun(std::shared_ptr<Ranks> ranks, nn::Optimizer& optimizer);

  Ranks& ranks() const { return *ranks_; }
  bool leads() const { return ranks_->rank() == 0; }
  const std::shared_ptr<const nn::Shards>& shards() const { return shards_; }

  // The sampler for this rank: on rank 0 the given one.
  std::unique_ptr<Sampler> sampler_for(std::unique_ptr<Sampler> sampler) const;
  // Returns the next step's order and batch, on every rank but 0 with the units that it computes.
  // Collective: `decide` runs on rank 0, and `sampler`, one of sampler_for(), draws there. Throws
  // on every rank what they throw. `place` names the call for people.
  std::pair<StepOrder, SampledBatch> draw(std::string_view place, Sampler& sampler,
                                          const UnitOwners& owners,
                                          const std::function<StepOrder()>& decide);
  // The state of a mechanism (Mechanism::state) for a checkpoint: whole on rank 0, empty on the
  // others, from each rank's own; and the reverse, each rank's own from rank 0's. The parameters
  // are those of the sums. Collective.
  MechanismState whole(MechanismState own, const std::vector<const Parameter*>& parameters) const;
  MechanismState own(const MechanismState& whole,
                     const std::vector<const Parameter*>& parameters) const;
  // Throws std::invalid_argument unless a mechanism's whole state has a memory for the parameters,
  // or none. Local.
  static void check_whole(const MechanismState& whole,
                          const std::vector<const Parameter*>& parameters);
  // Returns, or throws, what `progress` does on rank 0. Collective.
  RunProgress tell(const std::function<RunProgress()>& progress) const;

 private:
  std::shared_ptr<Ranks> ranks_;
  std::shared_ptr<const nn::Shards> shards_;
};

}  // namespace sotto
