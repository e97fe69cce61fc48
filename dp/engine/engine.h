// Private training, tied together: the sampler draws, the loss is computed in physical batches, the
// clipper bounds each unit, the mechanism adds noise and writes the ledger, the optimizer steps.
// One state holds the clip bounds, the noise multiplier and the sampling rate, so that they cannot
// disagree.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/io/safetensors.h"
#include "core/threads/one_user.h"
#include "dp/accounting/budget.h"
#include "dp/clipping/adaptive_clipping.h"
#include "dp/engine/privacy_statement.h"
#include "dp/engine/trained_parameters.h"
#include "dp/noise/correlated/correlated_mechanism.h"
#include "dp/sampling/make_sampler.h"
#include "memory/checkpointing/model_checkpoints.h"
#include "memory/loss_scale.h"
#include "memory/physical_batches.h"
#include "memory/planning/planner.h"
#include "memory/planning/policy.h"
#include "memory/profiling/phase_profiler.h"
#include "nn/optim/optimizer.h"

namespace sotto {

// Means that are to be released: MeanQuery has the numbers.
struct PlannedMeans {
  double noise_multiplier = 1;
  double sampling_rate = 1;
  std::int64_t times = 1;
};

struct EngineOptions {
  // Exactly one of the two: a noise multiplier, or an epsilon to which it is calibrated for
  // `steps`, with what the ledger's releases and planned_means leave of it.
  std::optional<double> noise_multiplier = {};
  std::optional<double> target_epsilon = {};
  // Below 1 over the population, unless allow_large_delta.
  double delta = 1e-5;
  bool allow_large_delta = false;
  // Steps that are planned; with a target epsilon no step is made that would go beyond it.
  std::int64_t steps = 0;
  // Releases of release_means() that are written into the ledger's plan beside the steps.
  std::vector<PlannedMeans> planned_means = {};
  // Proves for the relation of the ledger.
  AccountantKind accountant = AccountantKind::pld;

  // How units are drawn, and the expected number of them in a logical batch (SamplerOptions).
  Sampling sampling = Sampling::poisson;
  double logical_batch = 256;
  // Truncated Poisson alone: the most units of a batch. Cyclic Poisson alone: the groups.
  std::int64_t max_batch_size = 0;
  std::int64_t groups_in_cycle = 0;
  // The physical batch and what else decides over memory. A unit's rows are never parted. With
  // rows_of_unit a precision that is not set is f32, whatever fits.
  memory::Policy memory = {};
  // Whom the promise is made to, in the words of the ledger's header, which must be the same.
  std::string unit = LedgerHeader{}.unit;
  // The rows of a unit: all records of a user, or one record several times, to be augmented
  // differently. Without it row k is unit k. A unit without rows has a gradient of zero. No row may
  // be of two units: refused for a batch, and when the engine is made for the whole population of
  // up to 2^20 units. Two rows that hold one record cannot be seen.
  std::function<std::vector<std::int64_t>(std::int64_t unit)> rows_of_unit = {};
  // A unit's gradient is the mean of its rows' and not their sum (De et al. 2022).
  bool mean_of_rows = false;
  // Told the rows that the loss will be asked for next, in parts, in this order: for what reads
  // ahead (BatchLoader::prefetch). They are as SECRET as what the loss is told.
  std::function<void(std::span<const std::int64_t> rows)> prefetch_rows = {};

  // The bound of all parameters together, unless there are groups with bounds of their own
  // (layer_groups, named_groups).
  double clip_bound = 1;
  std::vector<ClipGroup> groups = {};
  ClipOptions clipping = {};
  // Unset: one, or two where the memory policy has a limit that one cannot keep.
  std::optional<ClipPasses> passes = {};
  // The bounds above are where it starts.
  std::optional<AdaptiveClipping> adaptive_clipping = {};
  // Every bound at step k = 0, 1, ..., from the one above; moves the noise with it.
  std::optional<nn::Schedule> bound_schedule = {};
  // The noise multiplier at step k, from the one above or the one that is found for the target.
  std::optional<nn::Schedule> noise_schedule = {};
  GaussianNoise noise = GaussianNoise::discretized;
  // Noise that is correlated over the steps, for planned and cyclic Poisson batches alone: the
  // noise multiplier is then that of the whole plan or cycle (CorrelatedMechanism). A plan needs
  // it.
  std::optional<StrategyMatrix> noise_strategy = {};
  // Of gradients in the policy's precision (norms, clipping, noise and updates are not in it). One
  // that moves on_release has the number of finite gradients released at each step, beside the
  // gradient and within the same noise multiplier, with the noise on counts of adaptive_clipping,
  // or the default of that.
  LossScaling loss_scaling = {};
  // Public randomness: dropout and the like.
  std::uint64_t seed = 0;
};

// One noisy step happened. The statistics are NOT private.
struct StepReport {
  std::int64_t step = 0;  // how many have been made, this one included
  const ClipStatistics* statistics = nullptr;
};

// Means of bounded values over units drawn at random: a loss, an accuracy on the training data.
struct MeanQuery {
  std::vector<StatisticRange> ranges = {};
  // values(units)[k] are those of units[k], one for each range; at most a physical batch at a time.
  std::function<std::vector<std::vector<double>>(std::span<const std::int64_t> units)> values = {};
  double noise_multiplier = 1;
  double sampling_rate = 1;
};

// One thread at a time uses an engine, whichever. Calls of step(), release_means(), load_state(),
// state(), report(), epsilon() and can_step() by another one meanwhile throw std::invalid_argument,
// and so do the first three when they are called by a loss or a query of the engine itself; the
// other members are for the thread that makes the steps, or between them. Two engines in two
// threads need two models and optimizers.
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
  double noise_multiplier() const { return noise_at(steps_made_); }
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
  // The most rows that are computed at once: as in the policy or as found at the first step, until
  // memory ran out; nothing before they were found. On a GPU all parts have so many, rows that come
  // again included: no more than a batch has but once in a million.
  std::optional<std::int64_t> physical_batch() const;
  // How a step is computed within the policy's limit; nothing before the first step or without one.
  const std::optional<memory::Plan>& memory_plan() const { return plan_; }

 private:
  // Rows that are computed together, and whose they are.
  struct Part {
    std::vector<std::int64_t> rows;
    std::vector<std::int64_t> draws;  // what each row's public randomness is numbered by
    Grouping grouping;
    // The first row comes again, and counts for nothing, until there are so many.
    void pad(std::int64_t count);
  };
  // The rows of units: those of unit k are starts[k] .. starts[k + 1] - 1 of them.
  struct RowsOfUnits {
    std::vector<std::int64_t> rows;
    std::vector<std::int64_t> starts{0};
    std::int64_t units() const { return std::ssize(starts) - 1; }
    void add(std::span<const std::int64_t> rows_of_next);
  };
  RowsOfUnits rows_of(const SampledBatch& draw) const;
  void check_model();
  // Units first .. end - 1.
  Part physical_batch_of(const RowsOfUnits& units, std::int64_t first, std::int64_t end) const;
  // Where a part is added, and who measures it; how many rows it is filled up to.
  struct Target {
    Clipper& clipper;
    PhaseProfiler& phases;
    std::int64_t rows = 0;
  };
  void add_physical_batch(const Loss& loss, Part part, const Target& target) const;
  void plan_memory(const Loss& loss);
  std::vector<memory::Strategy> strategies(const memory::MemoryRequirement& requirement);
  void set_passes(ClipPasses passes, std::size_t per_sample_grad_budget);
  void set_physical_batches(std::int64_t rows);
  bool parts_of_one_size() const;
  std::int64_t rows_of_parts() const;
  void prefetch(const RowsOfUnits& units, std::span<const std::int64_t> block_ends,
                std::span<const std::int64_t> rows_of_blocks) const;
  std::size_t dry_peak(const Loss& loss, std::int64_t rows, std::int64_t more) const;
  std::size_t sum_bytes() const;
  RowsOfUnits dry_units(std::int64_t rows) const;
  SumBlocks dry_blocks(std::int64_t units, std::int64_t more, std::int64_t rows) const;
  SumBlocks::Limits block_size(std::int64_t rows) const;
  std::vector<std::int64_t> rows_of_unit(std::int64_t unit) const;

  static double noise_for(const EngineOptions& options, const Sampler& sampler,
                          const Ledger& ledger);
  double noise_at(std::int64_t step) const;
  // What the steps from one to before another will be accounted as.
  EventCounts planned(std::int64_t from, std::int64_t to) const;
  void write_plan();
  void compute(const SampledBatch& draw, const Loss& loss);
  void claim();
  NoisyGradient release(const Loss& loss);
  void follow_bound_schedule();
  void check_counts() const;
  // The standard deviation of the noise on counts released with the gradient; 0 for none.
  double unclipped_count_stddev(double expected_batch_size) const;
  std::unique_ptr<Mechanism> make_mechanism() const;
  GaussianMechanism* gaussian() { return dynamic_cast<GaussianMechanism*>(mechanism_.get()); }

  // Of options that were found to be without problems.
  EngineOptions options_;
  nn::Module& model_;
  nn::Optimizer& optimizer_;
  Ledger ledger_;
  std::shared_ptr<const void> claim_;
  std::unique_ptr<Sampler> sampler_;
  Clipper clipper_;
  LossScale loss_scale_;
  std::vector<double> first_bounds_;
  double first_noise_multiplier_;
  std::unique_ptr<Mechanism> mechanism_;
  Budget budget_;
  std::optional<memory::PhysicalBatches> physical_batches_;
  SumBlocks::Limits block_size_;
  std::int64_t max_physical_batch_ = 0;  // rows, where units have one each
  std::optional<memory::Plan> plan_;
  Dtype precision_;
  std::int64_t steps_made_ = 0;
  PhaseProfiler phases_;
  TrainedParameters trained_{model_};
  mutable OneUser user_;
};

}  // namespace sotto
