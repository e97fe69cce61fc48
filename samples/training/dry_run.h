// --dry-run: what a training would take, before anything is spent.
#pragma once

#include <memory>

#include "samples/training/options.h"

namespace sotto::samples {

// Prints the numbers of trained and frozen parameters, the planned epsilon, and the speed and the
// memory of some steps of a model that is thrown away, with a ledger in memory. Returns the
// program's exit status. Collective.
int dry_run(Task& task, const Options& options, const Data& data,
            const std::shared_ptr<Ranks>& ranks);

}  // namespace sotto::samples
