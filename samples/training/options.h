// The command line of a training program.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/ranks/ranks.h"
#include "samples/training/saved_run.h"
#include "samples/training/task.h"

namespace sotto::samples {

struct Options {
  Settings settings;
  std::optional<SavedRun> resumed;  // from which the run continues

  std::string preset;  // its name, and the differences from it; empty: none
  std::string recipe;  // the preset's settings that are not the program's defaults

  // As long as it lives, no other process reads or writes the files of the name `save`.
  std::vector<std::shared_ptr<const void>> locks;
  std::array<std::string, 2> data;  // fingerprints(), if anything is saved

  std::string save;         // the model's path; empty: nothing is saved
  std::string ledger;       // that the run continues; empty: one of its own
  bool statistics = false;  // whether statistics are saved, too
  std::string report, json;
  std::int64_t save_every = 0;  // steps; 0: once an epoch
  std::int64_t eval_every = 0;
  std::int64_t write_ahead = 16;
  int threads = 0;         // of each process; 0: all that are there
  std::string processors;  // of several processes, in words; empty: one process
  bool compare = false;    // also train without privacy, for comparison
  bool any_gpu = false;    // each of several processes takes the next GPU of its host
  bool quiet = false;
  bool dry_run = false;  // tells what the run would take, and makes none

  // The path of the run's ledger; empty: it is in memory.
  std::string ledger_file() const {
    return !ledger.empty() || save.empty() ? ledger : ledger_path(save);
  }
};

// Sets the task's settings, too. Returns nullopt when the program has already answered (--help).
// Values come from, in increasing precedence, the task's defaults, a preset or the checkpoint to
// resume, and the command line. Throws std::invalid_argument, in one line, for a wrong argument,
// and SystemFailure for a checkpoint that cannot be read. On several ranks all call it with the
// same arguments, rank 0 looks at files, and an error of one is thrown on all.
std::optional<Options> parse_options(Task& task, int argc, const char* const* argv, Ranks& ranks);

}  // namespace sotto::samples
