#include "samples/mnist/presets.h"

#include <span>

#include <sotto/core/error.h>

namespace sotto::mnist {

namespace {

struct Preset {
  const char* name;
  Settings settings;
};

// The common settings, found by hand on real MNIST (docs/explanation/performance.md).
Settings private_settings(double epsilon, double epochs) {
  return {.epsilon = epsilon,
          .delta = 1e-5,
          .clip_bound = 0.1,
          .epochs = epochs,
          .batch = 1024,
          .learning_rate = 1.2,
          .momentum = 0.9,
          .warmup = 20,
          .average = 0.99,
          .normalize = true};
}

// More steps on larger batches: each has less noise, and averages are longer.
Settings long_settings() {
  Settings settings = private_settings(2.93, 100);
  settings.batch = 2048;
  settings.learning_rate = 1.5;
  settings.average = 0.9975;
  return settings;
}

std::span<const Preset> presets() {
  static const Preset table[] = {
      // Above 98.1 % on real MNIST at epsilon 2.93.
      {"eps3", long_settings()},
      // About 97 % on real MNIST at epsilon 1.16.
      {"eps1", private_settings(1.16, 15)},
      // A good model within a minute.
      {"quick", private_settings(3, 12)},
  };
  return table;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  return names;
}

Settings preset(const std::string& wanted) {
  for (const Preset& preset : presets()) {
    if (wanted == preset.name) return preset.settings;
  }
  fail(fmt::format("--preset: no preset is called {}", wanted));
}

}  // namespace sotto::mnist
