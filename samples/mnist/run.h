// One run of the program, from its options to its closing line.
#pragma once

#include "samples/mnist/options.h"
#include "samples/mnist/training.h"

namespace sotto::mnist {

// Makes SIGINT, SIGTERM, SIGHUP, and standard output that is a pipe with no reader left ask a run
// to stop at the end of its step; a second signal ends the program. A signal that the program was
// started to ignore stays ignored.
void watch_for_signals();

// The data that the options name. Throws SystemFailure when it cannot be read, and
// std::invalid_argument for settings that it rules out; no file has been touched then.
Data prepare(Options& options);

// Trains, and returns the exit status: 0, or 128 + the signal that stopped it. Throws SystemFailure
// or another exception for failures on the way.
int run(const Options& options, const Data& data);

}  // namespace sotto::mnist
