// The run of an engine, and its steps without the lock. For the sources of this folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/threads/one_user.h"
#include "dp/engine/agreement.h"
#include "dp/engine/engine.h"
#include "dp/engine/memory_planning.h"
#include "dp/engine/release.h"
#include "dp/engine/run_facts.h"
#include "dp/engine/unit_batches.h"
#include "dp/engine/update.h"

namespace sotto {

class Engine::Parts {
 public:
  // Checks the options; with several ranks collective, and their data sets, if not null, too.
  static std::unique_ptr<Parts> make(nn::Module& model, nn::Optimizer& optimizer,
                                     std::int64_t population, const Dataset* data,
                                     const Ledger& ledger, const EngineOptions& options);
  Parts(nn::Module& model, nn::Optimizer& optimizer, std::int64_t population, const Dataset* data,
        const Ledger& ledger, const EngineOptions& checked);

  OneUser& user() const { return user_; }
  const EngineOptions& options() const { return options_; }
  const Release& release() const { return release_; }
  const Update& update() const { return update_; }
  const UnitBatches& batches() const { return batches_; }
  const MemoryPlanning& planning() const { return planning_; }
  const memory::PhaseProfiler& phases() const { return phases_; }
  std::int64_t steps_made() const { return steps_made_; }
  std::int64_t means_released() const { return means_released_; }
  double noise_multiplier() const { return release_.noise().noise_at(steps_made_); }
  const std::vector<std::string>& changes() const { return changes_; }

  bool can_step() const;
  StepReport step(const Loss& loss);
  std::vector<double> release_means(const MeanQuery& query);
  TensorFile state() const;
  void load(const TensorFile& file);

 private:
  void run(const Loss& loss, PhysicalBatch batch, Clipper& to, memory::PhaseProfiler& times) const;
  void plan_memory(const Loss& loss);
  StepOrder decide();
  void follow(const StepOrder& order);
  void compute(const Loss& loss, SampledBatch batch, double noise_multiplier);
  void share_progress(const std::function<void()>& first = [] {});
  const std::vector<Fact>& facts_of_data() const;
  void check_changes(const EngineState& state) const;
  void restore(const EngineState& state);

  const EngineOptions options_;  // validated
  nn::Module& model_;
  Agreement agreement_;
  Release release_;
  Update update_;
  UnitBatches batches_;
  MemoryPlanning planning_;
  std::int64_t steps_made_ = 0;
  std::int64_t means_released_ = 0;
  bool may_step_ = true;                              // within_target() on rank 0, broadcast
  std::optional<Dataset> data_;                       // if the engine was made for one
  mutable std::optional<std::vector<Fact>> of_data_;  // facts_of_data(), once asked for
  std::vector<Fact> facts_;                           // of options and optimizer, before any step
  std::vector<std::string> changes_;                  // since a state that was loaded
  memory::PhaseProfiler phases_;
  mutable OneUser user_;
};

}  // namespace sotto
