// The engine of private training (DP-SGD). In each step the sampler draws a batch, the loss is
// computed in physical batches, the clipper bounds each privacy unit's gradient, the mechanism adds
// noise and writes the ledger, and the optimizer updates the parameters. The engine holds the clip
// bounds, the noise multiplier and the sampling rate together, so that they cannot disagree.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "autograd/var.h"
#include "dp/clipping/clip_statistics.h"
#include "dp/engine/engine_options.h"
#include "dp/engine/privacy_statement.h"
#include "dp/ledger/ledger.h"
#include "dp/noise/statistic_range.h"
#include "nn/data/dataset.h"

namespace sotto {
class Ranks;
class Tape;
struct TensorFile;
namespace nn {
class Module;
class Optimizer;
}  // namespace nn
namespace memory {
class LossScale;
class PhaseProfiler;
struct Plan;
}  // namespace memory
}  // namespace sotto

namespace sotto {

// The report of one step. The statistics are NOT private.
struct StepReport {
  std::int64_t step = 0;                       // number of steps made, this one included
  const ClipStatistics* statistics = nullptr;  // valid until the next step
  std::vector<double> bounds = {};             // clip bounds of this step, by group
};

// A query for means of bounded values over randomly drawn units, such as the loss or the accuracy
// on the training data.
struct MeanQuery {
  std::vector<StatisticRange> ranges = {};  // values are clamped to them
  // values(units)[k] are the values of units[k], one for each range. It is called with at most one
  // physical batch of units at a time, and with no unit without rows (EngineOptions::rows_of_unit):
  // such a unit adds 0 to the sums that get noise, as if its values were the middles of the ranges.
  std::function<std::vector<std::vector<double>>(std::span<const std::int64_t> units)> values = {};
  double noise_multiplier = 1;  // of all means together
  double sampling_rate = 1;     // probability of each unit to be drawn
};

// Trains a model with differential privacy, one step per call. train() (dp/engine/train.h) makes
// all steps on a data set in memory; use the engine directly for another loop:
//
//   Engine engine(model, optimizer, data, Ledger::create("run.ledger"),
//                 {.target_epsilon = 3, .steps = 1000});
//   while (engine.next_step(loss)) {}
//
// Only one thread at a time may use an engine. Calls of step(), release_means(), load_state(),
// state(), report(), epsilon() and can_step() during another thread's call throw
// std::invalid_argument, and so do the first three if the loss or a query calls them. Call the
// other members in the thread that makes the steps, or between steps. Engines in different threads
// need different models and optimizers.
//
// On several ranks (EngineOptions::ranks) the constructor, step(), release_means(), state() and
// load_state() are collective: every rank calls them, in the same order. epsilon() and report() are
// rank 0's, and throw std::invalid_argument elsewhere; so does the ledger (Ledger::on_rank_0). All
// else is local: can_step(), steps_made() and noise_multiplier() are the same on every rank, and
// statistics are of the rank's own units.
class Engine {
 public:
  // Returns one loss per row, [rows], on the given private tape. `rows` may contain a row
  // repeatedly.
  using Loss = std::function<Var(Tape& tape, std::span<const std::int64_t> rows)>;

  // Trains the parameters of `model` that are trainable now; `population` is the number of privacy
  // units. The model and the optimizer must outlive the engine. While it lives, no trained
  // parameter may be replaced, frozen, or change its shape, type or device.
  //
  // One run of a ledger belongs to one engine at a time, the first that releases something
  // (Ledger::new_run). If the ledger has no release yet, the engine writes its plan into it;
  // otherwise its releases count as adaptive, that is, chosen after looking at earlier ones. The
  // privacy spent by earlier releases in the ledger counts.
  //
  // Throws std::invalid_argument, listing all problems (dp/engine/validation.h), for options that
  // are out of range or contradict each other, for an optimizer whose parameters are not those that
  // the model trains, for a ledger of another population, and for a target epsilon that the ledger
  // has already spent.
  Engine(nn::Module& model, nn::Optimizer& optimizer, std::int64_t population, const Ledger& ledger,
         const EngineOptions& options);
  // An engine for a data set: its units are the population and give options.rows_of_unit
  // (with_units_of). The loss is called with numbers of its samples. On several ranks it must be
  // the same everywhere, unless each unit has an owner.
  Engine(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data, const Ledger& ledger,
         const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  // True if another step is planned and stays within the target epsilon.
  bool can_step() const;
  // Makes one logical step. An empty batch is an ordinary step: noise is added and the step
  // charged. When memory runs out, the step continues with smaller physical batches, down to one
  // unit. If the loss throws, no update is released or charged; on several ranks the run has then
  // failed, and the others throw a RankFailure. What the ledger refuses is thrown on every rank.
  //
  // Throws std::invalid_argument, without a release or charge, if can_step() is false, if other
  // runs of the ledger have meanwhile spent the rest of the target epsilon (can_step() is false
  // from then on), and if a trained parameter was replaced, changed or holds NaN or infinity. On a
  // GPU, where reading values makes the host wait, these are checked only after an assignment and
  // before every 16th step.
  StepReport step(const Loss& loss);
  // step() for loops: returns nullopt, with nothing released or charged, if can_step() is false,
  // and if the step finds that other runs of the ledger have spent the rest of the target epsilon.
  // So a training ends in the ordinary way, and what it paid for is saved:
  //
  //   while (const auto report = engine.next_step(loss)) print(report->step);
  std::optional<StepReport> next_step(const Loss& loss);
  // Returns noisy estimates of the means, one per range, and charges them to the ledger. Releases
  // beyond options.planned_means make the ledger's history adaptive, and epsilon larger. Throws
  // std::invalid_argument, without a release, if the target epsilon would be exceeded, and with a
  // noise_strategy. On several ranks `values` is called on each with the units that it owns.
  std::vector<double> release_means(const MeanQuery& query);

  // The epsilon spent so far by all runs of the ledger, those in other processes as of the last
  // reservation; infinite if the ledger is marked as not private. Takes some tens of milliseconds
  // after new releases.
  double epsilon() const;
  // The delta of the options.
  double delta() const;
  // The ranks of the run; a OneRank for one process. Never null.
  std::shared_ptr<Ranks> ranks() const;
  // A handle of the ledger's run that the engine's releases belong to.
  Ledger ledger() const;
  // The privacy statement as of now: the guarantee, for whom, and under which assumptions.
  PrivacyStatement report() const;
  // The options, as checked: with the units of the data set, and the ranks of the ledger.
  const EngineOptions& options() const;
  // The noise multiplier of the next step.
  double noise_multiplier() const;
  const Sampler& sampler() const;      // dp/sampling/sampler.h
  const Mechanism& mechanism() const;  // dp/noise/mechanism.h
  const Clipper& clipper() const;      // dp/clipping/clipper.h
  // The loss scale of the next step (memory/loss_scale.h).
  const memory::LossScale& loss_scale() const;
  // Steps made so far, including those before a loaded state.
  std::int64_t steps_made() const;
  // Calls of release_means() so far, including those before a loaded state; on rank 0.
  std::int64_t means_released() const;
  // After load_state() on rank 0, a line for people for each difference between this engine and
  // that of the state: options, the optimizer's rules, and, if both were made for a data set, its
  // samples and units. Those that a checkpoint would overrule are refused.
  const std::vector<std::string>& changes() const;
  // The engine's part of a training checkpoint (dp/engine/training_checkpoint.h): steps, noise
  // multiplier, clip bounds, loss scale, the sampler's position, and past noise that is correlated
  // with noise to come. As SECRET as batches and noise are. It holds no generator of random
  // numbers. On several ranks rank 0 gets it, and the others an empty file.
  TensorFile state() const;
  // Continues from a state. If the ledger has seen later draws, the sampler begins a new epoch.
  // Throws std::invalid_argument, with nothing changed, if the state is that of an engine with
  // other options, model or ledger run, if a plan of correlated noise cannot continue, and if the
  // data are others than the state's in the middle of such a plan or of an epoch that is charged
  // once (partition, balls and bins), in which a unit could then take part twice.
  void load_state(const TensorFile& state);
  // Seconds and bytes of the phases of all steps so far (memory/profiling/phase_profiler.h).
  const memory::PhaseProfiler& phases() const;
  // Rows per physical batch: the policy's value, or the one found at the first step (nullopt
  // before), halved after an out-of-memory error. On a GPU every physical batch is padded to this
  // size; a batch exceeds it with a probability of at most 2^-20.
  std::optional<std::int64_t> physical_batch() const;
  // The strategy chosen for the policy's memory limit; null before the first step or without a
  // limit.
  const memory::Plan* memory_plan() const;

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace sotto
