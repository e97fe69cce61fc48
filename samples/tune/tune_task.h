// Digits, learned with settings that are learned in the same private training, or chosen by a
// sweep.
#pragma once

#include <optional>

#include "samples/mnist/digits_task.h"
#include "samples/training/task.h"
#include "samples/tune/settings_learner.h"

namespace sotto::tune {

// A sweep instead of one training. sum: all settings are trained and told, and all are charged.
// select: a random number of them, and the best alone is told (select_privately).
inline constexpr std::int64_t max_sweep = 10'000;

struct Sweep {
  std::int64_t settings = 0;  // 0: no sweep
  std::string charge = "sum";
  double range = 16;  // settings are drawn from 1 / range to range times the given ones
};

class TuneTask final : public samples::Task {
 public:
  samples::TaskFacts facts() override;
  void add_options(samples::CommandLine& line, Options which, samples::Settings& settings) override;
  void prepare(samples::Settings& settings) override;
  samples::Data load(const samples::Settings& settings) override;
  samples::TaskModel make_model(const samples::Data& data,
                                const samples::Settings& settings) override;

  const Sweep& sweep() const { return sweep_; }
  // The public rows: they guide the learning of settings, and judge the settings of a sweep.
  const Dataset& clean() const { return clean_; }
  double weight_decay() const { return weight_decay_; }
  // Learns nothing from now on, and decays weights so.
  void fix_settings(double weight_decay);

 private:
  void add_model_options(samples::CommandLine& line);
  mnist::DigitsTask digits_;
  std::string learn_ = "lr,wd";
  double weight_decay_ = 1e-4, rate_ = Learning{}.rate;
  std::int64_t public_rows_ = 1000;
  Sweep sweep_;
  Learning learning_;
  Dataset clean_;
};

}  // namespace sotto::tune
