// Private training, tied together: the sampler draws a batch, the loss is computed in physical
// batches, the clipper bounds each unit's gradient, the mechanism adds noise and writes the ledger,
// the optimizer steps. One state holds the clip bounds, the noise multiplier and the sampling rate,
// so that they cannot disagree.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/io/safetensors.h"
#include "core/threads/one_user.h"
#include "dp/accounting/budget.h"
#include "dp/engine/engine_options.h"
#include "dp/engine/memory_planning.h"
#include "dp/engine/noise_schedule.h"
#include "dp/engine/privacy_statement.h"
#include "dp/engine/trained_parameters.h"
#include "dp/engine/unit_batches.h"
#include "nn/data/dataset.h"

namespace sotto {

struct EngineState;

// One noisy step happened. The statistics are NOT private.
struct StepReport {
  std::int64_t step = 0;  // how many have been made, this one included
  const ClipStatistics* statistics = nullptr;
};

// Means of bounded values over units drawn at random: a loss, an accuracy on the training data.
struct MeanQuery {
  std::vector<StatisticRange> ranges = {};
  // values(units)[k] are the values of units[k], one for each range; called with at most a physical
  // batch of units at a time.
  std::function<std::vector<std::vector<double>>(std::span<const std::int64_t> units)> values = {};
  double noise_multiplier = 1;
  double sampling_rate = 1;
};

// One thread at a time uses an engine. While it does, calls of step(), release_means(),
// load_state(), state(), report(), epsilon() and can_step() by another thread throw
// std::invalid_argument, and so do the first three when a loss or a query of the engine itself
// calls them; the other members are for the thread that makes the steps, or between steps. Two
// engines in two threads need two models and optimizers.
class Engine {
 public:
  // One loss for each row, [rows], on the given private tape. A row may come several times.
  using Loss = std::function<Var(Tape& tape, std::span<const std::int64_t> rows)>;

  // Trains the parameters of `model` that are not frozen now, with the memory policy's checkpoints.
  // The model and the optimizer must outlive the engine: a destroyed one cannot be seen. Of the
  // parameters that are trained, none may be replaced, frozen, or be given another shape, type or
  // device while it lives. A run of a ledger is for one engine at a time, the first that releases
  // something (Ledger::new_run). The plan of the engine is written into the ledger where nothing
  // was released yet; its releases count as chosen by looking at what was, else. Steps and privacy
  // continue from what the ledger holds. Throws std::invalid_argument, with all problems at once
  // (dp/engine/validation.h), for options that are out of range or disagree, for an optimizer that
  // has other parameters than the model trains, for a ledger of a data set with another population,
  // and for a target epsilon of which the ledger has nothing left.
  Engine(nn::Module& model, nn::Optimizer& optimizer, std::int64_t population, const Ledger& ledger,
         const EngineOptions& options);
  // The same for a data set, whose units are the population and give options.rows_of_unit
  // (with_units_of). The loss is asked for rows of it.
  Engine(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data, const Ledger& ledger,
         const EngineOptions& options);

  // Whether another step is planned and within the target epsilon.
  bool can_step() const;
  // One logical step; an empty batch is an ordinary step, with noise added and charged. When memory
  // runs out, the step goes on in smaller physical batches, down to a single unit. When the loss
  // throws, nothing is released or charged. Throws std::invalid_argument when can_step() is
  // false, and when other runs of the ledger have spent what is left of a target epsilon since:
  // nothing is released then, and can_step() is false from there on. Throws it also, with nothing
  // released or charged, for a trained parameter that is not what it was when the engine was made,
  // or holds NaN or infinity. On a GPU, for which the host would have to wait, values are looked at
  // once they were assigned, and before every 16th step.
  StepReport step(const Loss& loss);
  // Estimates of the means, released through the same ledger. Throws std::invalid_argument, with
  // nothing released, when the target epsilon would be passed. Beyond planned_means they make the
  // ledger's history adaptive, and epsilon larger.
  std::vector<double> release_means(const MeanQuery& query);

  // Spent so far by all runs of the ledger, those in other processes as of the last reservation;
  // infinite when the ledger is marked as not private. Costs some tens of milliseconds after new
  // releases.
  double epsilon() const;
  double delta() const { return options_.delta; }
  // A handle of the run that the engine releases by.
  Ledger ledger() const { return ledger_; }
  // What is guaranteed now, for whom and under which assumptions.
  PrivacyStatement report() const;
  // Of the next step.
  double noise_multiplier() const { return noise_.noise_at(steps_made_); }
  const Sampler& sampler() const { return *sampler_; }
  const Mechanism& mechanism() const { return *mechanism_; }
  const Clipper& clipper() const { return clipper_; }
  const LossScale& loss_scale() const { return loss_scale_; }
  // Steps made by this engine's model.
  std::int64_t steps_made() const { return steps_made_; }
  // A checkpoint needs this besides the model and the optimizer (dp/engine/training_checkpoint.h):
  // steps, noise multiplier, clip bounds, loss scale, where the sampler stands, past noise that is
  // correlated with the next. As SECRET as the batches and that noise. No generator is part of it.
  TensorFile state() const;
  // Goes on from a state. Where the ledger has seen later draws, the sampler begins a new pass.
  // Throws std::invalid_argument, with nothing changed, when the state is not of an engine like
  // this one, or a plan of correlated noise cannot go on.
  void load_state(const TensorFile& state);
  const PhaseProfiler& phases() const { return phases_; }
  // Rows per physical batch: the policy's value, or the one found at the first step (nothing before
  // it), halved when memory ran out. On a GPU every physical batch is padded to this size; a batch
  // exceeds it with a probability of at most 2^-20.
  std::optional<std::int64_t> physical_batch() const { return batches_.rows(); }
  // How a step is computed within the policy's limit; nothing before the first step or without one.
  const std::optional<memory::Plan>& memory_plan() const { return planning_.plan(); }

 private:
  void check_model();
  void run(const Loss& loss, PhysicalBatch batch, Clipper& clipper, PhaseProfiler& phases) const;
  void claim();
  void follow_bound_schedule();
  NoisyGradient release(const Loss& loss);
  void adapt(const NoisyGradient& released);
  void check_state(const EngineState& state) const;

  const EngineOptions options_;  // that were found to be without problems
  nn::Module& model_;
  nn::Optimizer& optimizer_;
  Ledger ledger_;
  std::shared_ptr<const void> claim_;
  std::unique_ptr<Sampler> sampler_;
  Clipper clipper_;
  LossScale loss_scale_;
  std::vector<double> initial_bounds_;
  NoiseSchedule noise_;
  std::unique_ptr<Mechanism> mechanism_;
  Budget budget_;
  UnitBatches batches_;
  MemoryPlanning planning_;
  std::int64_t steps_made_ = 0;
  PhaseProfiler phases_;
  TrainedParameters trained_{model_};
  mutable OneUser user_;
};

}  // namespace sotto
