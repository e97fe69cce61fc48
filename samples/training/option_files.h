// The files that a training program's options name: locks, and checks before anything is read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "samples/training/options.h"

namespace sotto::samples {

// Locks of a name for --save: of itself, and of its state, which could be another run's model.
std::vector<std::shared_ptr<const void>> locks_of(const char* option, const std::string& name);
// Refuses the name of another run, whose files, least of all its ledger, must not be overwritten.
void check_unused(const Options& options);
// Refuses files that cannot be written, and ledgers that are not there or another training's.
void check_files(Task& task, const Options& options);

}  // namespace sotto::samples
