#include "samples/mnist/presets.h"

#include <span>

#include "sotto/core/error.h"

namespace sotto::mnist {

namespace {

struct Preset {
  const char* name;
  Settings settings;
};

std::span<const Preset> presets() {
  static const Preset table[] = {
      // About 98 % of real MNIST at epsilon 2.93 (docs/performance.md).
      {"eps3",
       {.epsilon = 2.93,
        .delta = 1e-5,
        .clip_bound = 0.1,
        .epochs = 50,
        .batch = 1024,
        .learning_rate = 1.2,
        .momentum = 0.9,
        .average = 0.995,
        .normalize = true}},
      // About 97 % of real MNIST at epsilon 1.16.
      {"eps1",
       {.epsilon = 1.16,
        .delta = 1e-5,
        .clip_bound = 0.1,
        .epochs = 15,
        .batch = 1024,
        .learning_rate = 1.2,
        .momentum = 0.9,
        .average = 0.99,
        .normalize = true}},
      // A good model within a minute.
      {"quick",
       {.epsilon = 3,
        .delta = 1e-5,
        .clip_bound = 0.1,
        .epochs = 15,
        .batch = 1024,
        .learning_rate = 1.2,
        .momentum = 0.9,
        .average = 0.99,
        .normalize = true}},
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
