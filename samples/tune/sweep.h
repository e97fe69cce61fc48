// A sweep over settings, charged honestly.
#pragma once

#include <string>
#include <vector>

#include "samples/training/options.h"
#include "samples/tune/tune_task.h"

namespace sotto::tune {

// One setting of a sweep.
struct SweepSetting {
  double learning_rate = 0, weight_decay = 0, clip_bound = 0;
  std::string text() const;
};
// Settings drawn around those given, by the seed of the settings: log-uniform, from 1 / range to
// range times each.
std::vector<SweepSetting> sweep_settings(const samples::Settings& around, double weight_decay,
                                         const Sweep& sweep);

// Trains with every setting, or with a random number of them, as the task's sweep says, and tells
// the best by its accuracy on the public rows, with the epsilon of the whole sweep. A target
// epsilon is that of the whole sweep; a noise multiplier is that of each training. Returns the exit
// status.
int sweep(TuneTask& task, const samples::Options& options, const samples::Data& data);

}  // namespace sotto::tune
