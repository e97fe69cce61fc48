// The release of a step: a sampled batch's clipped sum, with noise, charged to the ledger.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dp/accounting/budget.h"
#include "dp/clipping/clipper.h"
#include "dp/engine/agreement.h"
#include "dp/engine/engine.h"
#include "dp/engine/engine_state.h"
#include "dp/engine/noise_schedule.h"
#include "dp/engine/unit_batches.h"
#include "dp/ledger/ledger.h"
#include "nn/module.h"

namespace sotto {

// The sampler, the clipper and the mechanism with their ledger. The mechanism has the noise of the
// schedule, the clipper its bounds, and the sampler does not draw a batch that the ledger has seen.
class Release {
 public:
  // The options are validated. They and the agreement must outlive this object.
  Release(nn::Module& model, std::int64_t population, const Ledger& ledger,
          const EngineOptions& options, const Agreement& agreement);

  const Ledger& ledger() const { return ledger_; }
  const Sampler& sampler() const { return *sampler_; }
  Clipper& clipper() { return clipper_; }
  const Clipper& clipper() const { return clipper_; }
  const Mechanism& mechanism() const { return *mechanism_; }
  const Budget& budget() const { return budget_; }
  const NoiseSchedule& noise() const { return noise_; }
  // Speeds up the next release by drawing its noise in idle threads.
  void prefetch() { mechanism_->prefetch(); }

  // Checks the plan, and writes it into the ledger. For rank 0.
  void plan();
  // Tells the ledger the population, on every rank.
  void set_population() { ledger_.set_population(sampler_->population()); }
  // Claims the ledger's run, before its first release.
  void claim();
  // True if the next step is within the target epsilon. For rank 0.
  bool within_target(std::int64_t steps_made) const;
  // Throws std::invalid_argument if no step is planned and within the target epsilon. For rank 0.
  void check_step(std::int64_t steps_made) const;
  // Moves the clip bounds to those of a step.
  void follow_schedules(std::int64_t steps_made);

  // The place of the next draw. For rank 0.
  struct Place {
    SamplerState sampler;
    std::int64_t releases = 0;  // of the run
  };
  Place place() const;
  // Returns to a place unless something was released since: a batch that was not charged counts as
  // not drawn. For rank 0.
  void return_to(const Place& place);
  // Drops the clipped sums of a batch that ended in an error.
  void discard() { clipper_.discard(); }
  SampledBatch draw(const Agreement::Draw& draw, const UnitOwners& owners) {
    return agreement_.draw(draw, *sampler_, owners);
  }
  // Releases the sum of the batch, which the clipper holds, and makes the optimizer's step.
  NoisyGradient update(double noise_multiplier, SampledBatch batch, nn::Optimizer& optimizer);
  // Releases means of a batch of their own. The steps' sampler then skips its number.
  std::vector<double> means(const MeanQuery& query, const UnitBatches& batches);

  // Throws std::invalid_argument unless a state is one of this run. For rank 0.
  void check_state(const EngineState& state) const;
  // Continues from a state; changes nothing if it throws. For rank 0.
  void load(const EngineState& state);
  // Makes the mechanism that has this initial noise, if it has another.
  void set_initial_noise(double noise_multiplier);
  // Continues with the state of a mechanism, this rank's own.
  void load_mechanism(const MechanismState& state) { mechanism_->load_state(state); }
  // In the order of the clipped sums.
  std::vector<const Parameter*> parameters() const;

 private:
  const EngineOptions& options_;
  const Agreement& agreement_;
  Ledger ledger_;
  std::shared_ptr<const void> claim_;
  std::unique_ptr<Sampler> sampler_;
  Clipper clipper_;
  std::vector<double> initial_bounds_;
  NoiseSchedule noise_;
  std::unique_ptr<Mechanism> mechanism_;
  Budget budget_;
};

}  // namespace sotto
