// Training checkpoints, from which a run continues. They are SECRET: besides the weights they may
// contain the batches of epochs, past and to come. Losses, norms and times, which are not private,
// are in a file of their own, and the model that may be published in a third
// (dp/engine/training_checkpoint.h).
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/safetensors.h"
#include "dp/ledger/ledger_position.h"
#include "nn/data/dataset.h"
#include "samples/report/report.h"
#include "samples/training/settings.h"

namespace sotto::samples {

struct Checkpoint {
  // The task's measure on the test data after a step; without privacy there is no epsilon.
  struct Evaluation {
    std::int64_t step = 0;
    double measure = 0;
    std::optional<double> epsilon;
  };

  std::string program;  // that wrote it
  Settings settings;
  nlohmann::json all_settings;  // those of the task included
  std::int64_t step = 0;
  // Private runs: the ledger's position at this checkpoint, and the noise in use.
  std::optional<LedgerPosition> ledger;
  double noise_multiplier = 0;
  std::string ledger_file;  // the ledger's path; empty: unknown
  // Hashes of the training data and of the test data (fingerprints()); empty: unknown.
  std::array<std::string, 2> data;
  // Ordinary runs: the start of the next batch.
  ShuffledBatches::Position position;
  std::vector<Evaluation> history;
  std::map<std::string, Tensor> model, optimizer, average, learner;
  // Private runs: Engine::state().
  TensorFile engine;
  // True if a loaded file had a checksum, which then was correct.
  bool verified = false;
};

// Writes a safetensors file atomically: "model.conv1.weight", "optimizer.conv1.weight.momentum",
// "average.conv1.weight", the engine's tensors, and metadata in JSON. Throws SystemFailure when it
// cannot be written.
void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);
// Throws SystemFailure when the file cannot be read or is not a checkpoint of the program.
Checkpoint load_checkpoint(const std::string& path, const std::string& program);

// The file's contents without the engine's state, for the other ranks, and the checkpoint that they
// make of it.
TensorFile without_engine(const Checkpoint& checkpoint);
Checkpoint parse_checkpoint(const TensorFile& file, const std::string& program);

// The paths of the files beside the model, whose path the user gives.
std::string state_path(const std::string& model_path);
std::string ledger_path(const std::string& model_path);
std::string statistics_path(const std::string& model_path);

// Returns the checkpoint of the run saved as `model_path`, or that file itself, which was the
// checkpoint before there were model files. Throws SystemFailure, with advice, when neither exists.
Checkpoint load_saved(const std::string& model_path, const std::string& program);

// Numbers for the report that are NOT private: exact functions of the training data.
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

// Writes a file that only its owner can read.
void save_statistics(const std::string& path, const Statistics& statistics);
// Returns the file's contents up to `step`; empty when there is no file. Throws SystemFailure when
// it is damaged.
Statistics load_statistics(const std::string& path, std::int64_t step);

}  // namespace sotto::samples
