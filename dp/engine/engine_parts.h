// The parts of an engine. For the sources of this folder.
#pragma once

#include <memory>
#include <vector>

#include "core/threads/one_user.h"
#include "dp/accounting/budget.h"
#include "dp/engine/engine.h"
#include "dp/engine/engine_state.h"
#include "dp/engine/memory_planning.h"
#include "dp/engine/noise_schedule.h"
#include "dp/engine/shared_run.h"
#include "dp/engine/trained_parameters.h"
#include "dp/engine/unit_batches.h"
#include "dp/noise/bounded_statistics.h"

namespace sotto {

// The parts of an engine, and its steps without the lock.
struct Engine::Parts {
  // Checks the options; with several ranks collective, and their data sets, if not null, too.
  static std::unique_ptr<Parts> make(nn::Module& model, nn::Optimizer& optimizer,
                                     std::int64_t population, const Dataset* data,
                                     const Ledger& ledger, const EngineOptions& options);
  Parts(nn::Module& model, nn::Optimizer& optimizer, std::int64_t population, const Dataset* data,
        const Ledger& ledger, const EngineOptions& checked);

  double noise_multiplier() const { return noise.noise_at(steps_made); }
  void begin();  // checks the plan, and writes it into the ledger
  bool can_step() const;
  bool within_target() const;
  void check_step() const;
  void check_model();
  void run(const Loss& loss, PhysicalBatch batch, Clipper& to, memory::PhaseProfiler& times) const;
  void claim_run();  // the ledger's, for this engine, before its first release
  void follow_bound_schedule();
  NoisyGradient release(const Loss& loss);
  void adapt(const NoisyGradient& released);
  void plan_memory(const Loss& loss);
  StepReport step(const Loss& loss);
  void plan_together(const Loss& loss);
  StepReport step_together(const Loss& loss);
  void compute_together(const Loss& loss, SampledBatch batch, const StepOrder& order);
  void deny_together(const SamplerState& before, std::int64_t releases);
  void share_progress();  // tells the others how far rank 0 is
  std::vector<double> release_means(const MeanQuery& query);
  std::vector<double> release_means(const MeanQuery& query, SampledBatch draw, StatisticSum sum,
                                    Mechanism& gaussian);
  std::vector<const Parameter*> summed_parameters() const;  // in the order of the clipped sums
  const std::vector<Fact>& facts_of_data() const;
  EngineState state() const;  // without the mechanism's
  void check_state(const EngineState& state) const;
  void check_changes(const EngineState& state) const;
  void load(const EngineState& state);
  void load_together(const TensorFile& file);
  bool leads() const { return !shared || shared->leads(); }

  const EngineOptions options;  // validated
  nn::Module& model;
  nn::Optimizer& optimizer;
  Ledger ledger;
  std::unique_ptr<SharedRun> shared;  // null without other ranks
  bool may_step = true;               // with other ranks: within_target() as rank 0 told
  std::shared_ptr<const void> claim;
  std::unique_ptr<Sampler> sampler;
  Clipper clipper;
  memory::LossScale loss_scale;
  std::vector<double> initial_bounds;
  NoiseSchedule noise;
  std::unique_ptr<Mechanism> mechanism;
  Budget budget;
  UnitBatches batches;
  MemoryPlanning planning;
  std::int64_t steps_made = 0;
  std::int64_t means_released = 0;
  std::optional<Dataset> data;                       // if the engine was made for one
  mutable std::optional<std::vector<Fact>> of_data;  // facts_of_data(), once asked for
  std::vector<Fact> facts;                           // of options and optimizer, before any step
  std::vector<std::string> changes;                  // since a state that was loaded
  memory::PhaseProfiler phases;
  TrainedParameters trained{model};
  mutable OneUser user;
};

}  // namespace sotto
