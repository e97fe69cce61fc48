// One run of the program, from its options to its closing line.
#pragma once

#include <memory>

#include "core/ranks/ranks.h"
#include "samples/training/options.h"

namespace sotto::samples {

// Trains, and returns the exit status: 0, or 128 + the signal that stopped it. Throws SystemFailure
// or another exception for failures. Collective: rank 0 alone has files.
int run(Task& task, const Options& options, const Data& data, const std::shared_ptr<Ranks>& ranks);

}  // namespace sotto::samples
