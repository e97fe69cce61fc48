#include "samples/training/comparison.h"

#include <algorithm>
#include <cmath>

namespace sotto::samples {

std::optional<double> ordinary_measure(Task& task, const Settings& settings, const Data& data,
                                       const std::function<bool()>& stop,
                                       const std::shared_ptr<Ranks>& ranks) {
  Settings ordinary = settings;
  ordinary.privacy = false;
  ordinary.train_size = data.train.size();
  ordinary.batch = std::max(1.0, std::round(settings.batch));
  ordinary.learning_rate = task.ordinary_learning_rate();
  ordinary.average.reset();
  task.fit_to_data(ordinary);
  Ledger unused;
  Trainer trainer(task, ordinary, data, unused, std::nullopt, ranks);
  while (trainer.step()) {
    if (stop()) return std::nullopt;
  }
  return trainer.test_measure();
}

}  // namespace sotto::samples
