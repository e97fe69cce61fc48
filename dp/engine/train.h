// A complete private training in one call, on a data set in memory.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "dp/engine/engine.h"
#include "dp/engine/learner.h"
#include "dp/engine/standardize.h"
#include "nn/data/images/augment.h"

namespace sotto::nn {
class MovingAverage;
}  // namespace sotto::nn

namespace sotto {

class TrainingObserver;

// Random views of each sample in a batch, such as shifted pictures. Those of one sample are one
// privacy unit: its gradient is the mean over its views, clipped once (De et al. 2022).
struct SampleViews {
  std::int64_t count = 1;  // of each sample in a step
  // Returns views[k] of samples[k] for each k, on the CPU: a function of its arguments alone, so
  // that a step that is repeated sees the same views. Another thread may call it.
  std::function<Dataset(const Dataset& samples, std::span<const RecordView> views,
                        std::uint64_t seed)>
      make = {};
};

// Options of train().
struct TrainOptions {
  EngineOptions engine = {};  // of the private steps
  // The path of a training checkpoint (dp/engine/training_checkpoint.h; SECRET), which is written
  // before the first step, after every `save_every` steps and after the last one. If the file
  // exists, training continues from it; steps made after the last checkpoint are repeated, and
  // their privacy stays spent. Empty: no checkpoint.
  std::string save = {};
  std::int64_t save_every = 100;  // steps between checkpoints
  // The lock of the name `save` (core/io/file_lock.h), if the caller has taken it, on rank 0;
  // unset: train() takes it.
  std::shared_ptr<const void> lock = {};
  // Standardises the inputs before the first step: means and deviations of columns are released
  // into a layer of the model, and the target epsilon holds for them and all steps together.
  std::optional<StandardizeOptions> standardize = {};
  // Called with lines for people, on rank 0 if there are ranks: that the training ended before
  // its last step because the target epsilon is spent, that a resumed one has
  // nothing left to do, and what differs from the checkpoint (Engine::changes). Unset: they are
  // printed on standard error.
  std::function<void(const std::string& line)> tell = {};

  // The learning rate over the steps, from the optimizer's.
  std::optional<nn::Schedule> schedule = {};
  // Updated after each step, and saved in checkpoints. It costs no privacy.
  nn::MovingAverage* average = nullptr;
  // Learns settings beside the model.
  Learner* learner = nullptr;
  // Called after every `evaluate_every` steps (0: never) and after the last one, with the averaged
  // weights in the model if there is an average; on every rank. Whatever it shows of private data
  // is not private.
  std::function<void(std::int64_t step)> evaluate = {};
  std::int64_t evaluate_every = 0;  // steps
  // Trains on views in place of the samples.
  std::optional<SampleViews> views = {};
  // Captures forward and backward as CUDA graphs and replays them, where that gives the same bits
  // (memory/captured_loss.h). The loss must be a function of the batch and the parameters alone.
  bool capture = false;
  // Watches the training, and may write its checkpoints (dp/engine/training_run.h).
  TrainingObserver* observer = nullptr;
};

// In the place of a ledger: ordinary training, in which nothing is private.
struct NoPrivacy {};

// A loss returns one loss per sample, [n]. LabelLoss and ValueLoss compute it from the model's
// outputs and the batch's targets: labels (nn::CrossEntropyLoss) or values (nn::MseLoss). BatchLoss
// computes it from the batch, on the private tape, for a model with other inputs.
using LabelLoss = std::function<Var(const Var& outputs, const Tensor& targets)>;
// For targets that are values.
using ValueLoss = std::function<Var(const Var& outputs, const Var& targets)>;
// For the whole batch.
using BatchLoss = std::function<Var(Tape& tape, const Dataset& batch)>;
// Any of the three.
using TrainLoss = std::variant<LabelLoss, ValueLoss, BatchLoss>;

// Called after each step, on rank 0 if there are ranks; engine.epsilon() is the epsilon spent so
// far. Training ends when it returns false. If that decision looked at the model, the statement's
// epsilon_planned holds, not its epsilon.
using OnStep = std::function<bool(const StepReport& report, const Engine& engine)>;

// Trains the model by an Engine on this data, for all steps that are planned and within the target
// epsilon, also where other runs of the ledger share it, and returns the privacy statement, which
// save_model() stores with the model. A model on a GPU gets its batches there, prefetched.
//
//   nn::Sgd optimizer(model, {.learning_rate = 1});
//   const PrivacyStatement statement = train(
//       model, optimizer, data, "run.ledger",
//       {.engine = {.target_epsilon = 3, .steps = 1000}, .save = "run.state"},
//       nn::CrossEntropyLoss{});
//
// With options.engine.ranks it is collective: every rank makes the same call, rank 0 alone has the
// files, and all return the same statement. It is refused where another rank sees a ledger or a
// checkpoint and rank 0 does not.
//
// `ledger` is the path of the ledger file, which is created if it does not exist, with the unit
// options.engine.unit and the relation add_or_remove_one. Releases that it already holds count.
// Throws where Engine, Engine::step(), save_checkpoint() and load_checkpoint() do; SystemFailure
// for files that do not belong together, and, before any of them is read, while another training,
// in this process or another, has the name options.save; std::invalid_argument unless
// options.engine.steps >= 1 and save_every >= 1.
PrivacyStatement train(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data,
                       const std::string& ledger, const TrainOptions& options,
                       const TrainLoss& loss, const OnStep& on_step = {});
// Trains with an open ledger, for example one in memory or one with another header. To continue
// from a checkpoint it must be Ledger::resume(path, checkpoint_mark(options.save)).
PrivacyStatement train(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data,
                       const Ledger& ledger, const TrainOptions& options, const TrainLoss& loss,
                       const OnStep& on_step = {});
// Ordinary training, for comparison: NOT PRIVATE. Of options.engine it takes steps, logical_batch
// (rounded), memory, seed and ranks, and it goes through the shuffled samples epoch by epoch; all
// other options mean the same. Standardising needs privacy and is refused.
void train(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data, NoPrivacy no_privacy,
           const TrainOptions& options, const TrainLoss& loss);

}  // namespace sotto
