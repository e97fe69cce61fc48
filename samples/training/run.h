// One run of the program, from its options to its closing line.
#pragma once

#include "samples/training/options.h"
#include "samples/training/trainer.h"

namespace sotto::samples {

// Makes SIGINT, SIGTERM, SIGHUP, and a standard output whose reader is gone, ask a run to stop at
// the end of its step; a second signal ends the program. A signal that was ignored when the program
// started stays ignored.
void watch_for_signals();

// Loads the data that the options name. Throws SystemFailure when they cannot be read, and
// std::invalid_argument for settings that do not fit them; no file is touched before.
Data prepare(Task& task, Options& options);

// Trains, and returns the exit status: 0, or 128 + the signal that stopped it. Throws SystemFailure
// or another exception for failures.
int run(Task& task, const Options& options, const Data& data);

}  // namespace sotto::samples
