// One run of the program, from its options to its closing line.
#pragma once

#include <memory>

#include "core/ranks/ranks.h"
#include "samples/training/options.h"
#include "samples/training/trainer.h"

namespace sotto::samples {

// Makes SIGINT, SIGTERM, SIGHUP, SIGUSR1, and a standard output whose reader is gone, ask a run to
// stop at the end of its step; one of several processes, of which any stops all, gets them from its
// launcher, possibly twice. Alone, a second SIGINT, SIGTERM or SIGHUP ends the program. A signal
// that was ignored when the program started stays ignored.
void watch_for_signals(bool alone);

// Loads the data that the options name, on every rank. Throws SystemFailure when they cannot be
// read, and std::invalid_argument for settings that do not fit them, and for data that differ
// between ranks; no file is touched before.
Data prepare(Task& task, Options& options, const std::shared_ptr<Ranks>& ranks);

// Trains, and returns the exit status: 0, or 128 + the signal that stopped it. Throws SystemFailure
// or another exception for failures. Collective: rank 0 alone has files.
int run(Task& task, const Options& options, const Data& data, const std::shared_ptr<Ranks>& ranks);

}  // namespace sotto::samples
