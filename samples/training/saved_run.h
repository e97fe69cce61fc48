// What a program keeps of a run to continue it: a section in the metadata of the library's training
// checkpoint (program_key), and the names of the files beside the model.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/ranks/ranks.h"
#include "dp/ledger/ledger_position.h"
#include "samples/training/settings.h"

namespace sotto::samples {

// The task's measure on the test data after a step; without privacy there is no epsilon.
struct Evaluation {
  std::int64_t step = 0;
  double measure = 0;
  std::optional<double> epsilon;
};

struct ProgramSection {
  std::string program;          // that wrote it
  nlohmann::json all_settings;  // those of the task included
  Settings settings;            // the common ones of them
  std::int64_t step = 0;
  double noise_multiplier = 0;  // private runs
  std::string ledger_file;      // the ledger's path; empty: none
  // Hashes of the training data and of the test data (fingerprints()); empty: unknown.
  std::array<std::string, 2> data;
  std::vector<Evaluation> history;
};
std::string to_json(const ProgramSection& section);

// A run to continue.
struct SavedRun {
  std::optional<ProgramSection> section;  // nullopt: a program without one wrote the checkpoint
  std::optional<LedgerPosition> ledger;   // private runs: the ledger's position in the checkpoint
};
// Parses both, as texts of a checkpoint's metadata; null: there is none. Throws
// std::invalid_argument or nlohmann::json::exception.
SavedRun saved_run(const nlohmann::json& section, const nlohmann::json& mark,
                   const std::string& program);

// The paths of the files beside the model, whose path the user gives.
std::string state_path(const std::string& model_path);
std::string ledger_path(const std::string& model_path);
std::string statistics_path(const std::string& model_path);

// The run whose model has this path, on every rank; rank 0 reads its checkpoint. Throws
// SystemFailure, with advice, when there is none, or none of the program.
SavedRun load_saved(Ranks& ranks, const std::string& model_path, const std::string& program);

}  // namespace sotto::samples
