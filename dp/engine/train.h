// A whole private training in one call, on a data set in memory.
#pragma once

#include <functional>
#include <string>
#include <variant>

#include "dp/engine/engine.h"

namespace sotto {

struct TrainOptions {
  EngineOptions engine = {};
  // A checkpoint (dp/engine/training_checkpoint.h; SECRET): written before the first step, after
  // every `save_every` steps and after the last one. When the file is there already, training goes
  // on from it; steps after the last checkpoint are made again, and were spent. Empty: nothing is
  // saved.
  std::string save = {};
  std::int64_t save_every = 100;
};

// The loss of each sample, [n], of the model's results and the targets of a batch: a tensor of
// labels (nn::CrossEntropyLoss) or values (nn::MseLoss). Or of the batch itself, where the model
// has other inputs; the tape is private.
using LabelLoss = std::function<Var(const Var& outputs, const Tensor& targets)>;
using ValueLoss = std::function<Var(const Var& outputs, const Var& targets)>;
using BatchLoss = std::function<Var(Tape& tape, const Dataset& batch)>;
using TrainLoss = std::variant<LabelLoss, ValueLoss, BatchLoss>;

// Called after each step, with engine.epsilon() for what was spent so far; training ends when it
// returns false. Where that was decided by looking at the model, what holds is the epsilon_planned
// of the statement.
using OnStep = std::function<bool(const StepReport& report, const Engine& engine)>;

// Makes the steps that are planned and within the target epsilon, by an Engine on this data, and
// returns what is guaranteed then: for save_model(), beside the model. A model on a GPU gets its
// batches there, read ahead.
//   nn::Sgd optimizer(model, {.learning_rate = 1});
//   const PrivacyStatement statement = train(
//       model, optimizer, data, "run.ledger",
//       {.engine = {.target_epsilon = 3, .steps = 1000}, .save = "run.state"},
//       nn::CrossEntropyLoss{});
// The ledger is a file, which is made if there is none: what earlier runs on it released counts.
// Its header says options.engine.unit and add_or_remove_one. Throws as Engine and its step() do,
// and as save_checkpoint() and load_checkpoint(); SystemFailure for files that do not belong
// together; and std::invalid_argument unless steps >= 1 and save_every >= 1.
PrivacyStatement train(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data,
                       const std::string& ledger, const TrainOptions& options,
                       const TrainLoss& loss, const OnStep& on_step = {});
// With a ledger that is open: in memory, where nothing is saved, or with a header of its own. To go
// on from a checkpoint it must be Ledger::resume(path, checkpoint_mark(options.save)).
PrivacyStatement train(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data,
                       const Ledger& ledger, const TrainOptions& options, const TrainLoss& loss,
                       const OnStep& on_step = {});

}  // namespace sotto
