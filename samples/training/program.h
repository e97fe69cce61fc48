// The body of a training program: settings, presets, progress, evaluation, report, ledger,
// checkpoints and resuming, memory limits and devices. A Task adds data, model and loss.
#pragma once

#include <functional>
#include <memory>

#include "core/ranks/ranks.h"
#include "samples/training/options.h"

namespace sotto::samples {

// Trains as the arguments say, and returns the program's exit status: 0; 2 for wrong arguments or
// data, before anything is released or written; 1 for failures; 128 + the signal that stopped it.
int train_program(Task& task, int argc, const char* const* argv);

// train_program() of a new task, as a command of a program that has several.
template <class T>
int train_command(int argc, const char* const* argv) {
  T task;
  return train_program(task, argc, argv);
}

// train_program() with another body than the training of one model, which run() is
// (samples/training/run.h).
using Body = std::function<int(const Options& options, const Data& data,
                               const std::shared_ptr<Ranks>& ranks)>;
int program(Task& task, int argc, const char* const* argv, const Body& body);

// Trains one model, until a signal asks to stop.
int train(Task& task, const Options& options, const Data& data,
          const std::shared_ptr<Ranks>& ranks);

}  // namespace sotto::samples
