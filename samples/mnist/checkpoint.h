// A state from which a run is continued. It is SECRET: beside the weights it may hold the batches
// of passes, past and to come. Losses, norms and times are in a file of their own, which is not
// private. The model that may be published is in a third file (dp/engine/training_checkpoint.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sotto/core/io/safetensors.h>
#include <sotto/dp/ledger/ledger_mark.h>
#include <sotto/nn/data/dataset.h>
#include "samples/mnist/settings.h"
#include "samples/report/report.h"

namespace sotto::mnist {

struct Checkpoint {
  // What was measured on the test data after a step; no epsilon without privacy.
  struct Evaluation {
    std::int64_t step = 0;
    double accuracy = 0;
    std::optional<double> epsilon;
  };

  Settings settings;
  std::int64_t step = 0;
  // Of private runs: the ledger when this was written, and the noise in use.
  std::optional<LedgerPosition> ledger;
  double noise_multiplier = 0;
  // Of ordinary ones: where the next batch begins.
  ShuffledBatches::Position position;
  std::vector<Evaluation> history;
  std::map<std::string, Tensor> model, optimizer, average;
  // Of private runs: Engine::state().
  TensorFile engine;
  // True for a loaded checkpoint whose file had a checksum; the checksum then held.
  bool verified = false;
};

// Written atomically as safetensors: "model.conv1.weight", "optimizer.conv1.weight.momentum",
// "average.conv1.weight", the engine's tensors, and metadata in JSON. Throws SystemFailure.
void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);
// Throws SystemFailure when the file cannot be read or is not such a checkpoint.
Checkpoint load_checkpoint(const std::string& path);

// Beside the model, whose path is what people give.
std::string state_path(const std::string& model_path);
std::string ledger_path(const std::string& model_path);
std::string statistics_path(const std::string& model_path);

// The state of the run that was saved as `model_path`, or the file itself, which was the checkpoint
// before there were models. Throws SystemFailure, also, saying what can be done, when there is
// neither.
Checkpoint load_saved(const std::string& model_path);

// Facts for the report that are NOT private: exact functions of the training data.
struct Statistics {
  struct Point {
    std::int64_t step = 0;
    double loss = 0;
    std::optional<double> clipped_fraction;
  };

  double seconds = 0;  // of training, over all runs
  std::vector<Point> points;
  std::vector<TrainingReport::NormHistogram> norms;
};

// For nobody but the file's owner to read.
void save_statistics(const std::string& path, const Statistics& statistics);
// What the file holds up to `step`; nothing when there is no file. Throws SystemFailure when it is
// damaged.
Statistics load_statistics(const std::string& path, std::int64_t step);

}  // namespace sotto::mnist
