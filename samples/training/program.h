// The body of a training program: settings, presets, progress, evaluation, report, ledger,
// checkpoints and resuming, memory limits and devices. A Task adds data, model and loss.
#pragma once

#include "samples/training/task.h"

namespace sotto::samples {

// Trains as the arguments say, and returns the program's exit status: 0; 2 for wrong arguments or
// data, before anything is released or written; 1 for failures; 128 + the signal that stopped it.
int train_program(Task& task, int argc, const char* const* argv);

}  // namespace sotto::samples
