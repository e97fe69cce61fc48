// Ordinary training beside a private one.
#pragma once

#include <functional>
#include <optional>

#include "samples/training/trainer.h"

namespace sotto::samples {

// Trains without privacy, with the settings of a private training that ordinary training has, the
// task's learning rate for it, and no averaging. Returns the task's measure on the test data. Ends
// early, without a result, when `stop` returns true after a step.
std::optional<double> ordinary_measure(Task& task, const Settings& settings, const Data& data,
                                       const std::function<bool()>& stop,
                                       const std::shared_ptr<Ranks>& ranks);

}  // namespace sotto::samples
