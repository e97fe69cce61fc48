// Learns learning rate, momentum, weight decay and clip bound in one training, by public rows.
#pragma once

#include <optional>

#include "dp/clipping/learned_clip_bound.h"
#include "multilevel/learned_settings.h"
#include "nn/data/dataset.h"
#include "samples/training/task.h"
#include "samples/tune/tuned_network.h"

namespace sotto::tune {

// Which settings are learned, and how.
struct Learning {
  bool learning_rate = true, momentum = false, weight_decay = true, bound = true;
  double initial_weight_decay = 1e-4;
  double rate = 0.05;  // of Adam, for the logarithms of settings
  bool anything() const { return learning_rate || momentum || weight_decay; }
};
// Parses "lr,momentum,wd,bound", any of them, or "none". Throws std::invalid_argument, with the
// option's name, for others.
Learning learning_of(const std::string& text);

class SettingsLearner final : public samples::TaskLearner {
 public:
  // `clean` are the public rows, of which each step sees a part, by turns. All must outlive it.
  SettingsLearner(TunedNetwork& model, nn::Optimizer& optimizer, const samples::Settings& settings,
                  const Learning& learning, const Dataset& clean);

  void set(EngineOptions& options) override;
  void begin_step(std::int64_t step, const Engine* engine) override;
  void end_step(std::int64_t step) override;
  Var losses(const Var& losses) override;
  std::vector<std::pair<std::string, std::string>> learned() const override;
  std::map<std::string, Tensor> state() const override;
  void load_state(const std::map<std::string, Tensor>& state) override;

 private:
  // The gradient of the public rows' mean loss at the present weights, which were released.
  Gradients direction(std::int64_t step);

  TunedNetwork& model_;
  const Dataset& clean_;
  std::optional<multilevel::LearnedSettings> settings_;
  std::optional<LearnedClipBound> bound_;
  bool has_direction_ = false;
};

}  // namespace sotto::tune
