#include "sotto/dp/validation.h"

#include <algorithm>
#include <cmath>

namespace sotto {

namespace {

class Problems {
 public:
  template <class... Args>
  void unless(bool ok, fmt::format_string<Args...> text, Args&&... args) {
    if (!ok) found_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  std::vector<std::string> all() && { return std::move(found_); }

 private:
  std::vector<std::string> found_;
};

bool positive(double x) { return x > 0 && std::isfinite(x); }

void check_privacy(Problems& problems, std::int64_t population, const EngineOptions& options) {
  const bool noise = options.noise_multiplier.has_value(),
             target = options.target_epsilon.has_value();
  problems.unless(noise != target, "give a noise multiplier or a target epsilon: {} given",
                  noise ? "both" : "neither");
  if (noise) {
    problems.unless(*options.noise_multiplier >= 0 && std::isfinite(*options.noise_multiplier),
                    "noise multiplier {}", *options.noise_multiplier);
  }
  if (target) {
    problems.unless(positive(*options.target_epsilon), "target epsilon {}",
                    *options.target_epsilon);
    problems.unless(options.steps >= 1, "a target epsilon needs the number of steps: {}",
                    options.steps);
  }
  const bool probability = options.delta > 0 && options.delta < 1;
  problems.unless(probability, "delta {} outside (0, 1)", options.delta);
  problems.unless(!probability || population < 1 || options.allow_large_delta ||
                      options.delta * static_cast<double>(population) < 1,
                  "delta {} is not below 1 / {} units: releasing one record as it is would be "
                  "within it (allow_large_delta, if that is meant)",
                  options.delta, population);
}

void check_sizes(Problems& problems, std::int64_t population, const EngineOptions& options) {
  problems.unless(population >= 1, "a population of {}", population);
  problems.unless(
      options.logical_batch > 0 && options.logical_batch <= static_cast<double>(population),
      "a logical batch of {} from {} units", options.logical_batch, population);
  problems.unless(options.physical_batch >= 1, "a physical batch of {}", options.physical_batch);
  problems.unless(options.steps >= 0, "{} steps", options.steps);
  problems.unless(positive(options.clip_bound), "clip bound {}", options.clip_bound);
}

// What is clipped and given noise must be what is updated.
void check_parameters(Problems& problems, nn::Module& model, const nn::Optimizer& optimizer) {
  const std::vector<const Parameter*> updated = optimizer.parameters();
  const auto has = [](const auto& all, const Parameter* p) {
    return std::find(all.begin(), all.end(), p) != all.end();
  };
  std::vector<const Parameter*> trained;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!parameter->trainable) continue;
    trained.push_back(parameter);
    problems.unless(has(updated, parameter),
                    "parameter {} is trained, but the optimizer does not have it", name);
  }
  problems.unless(!trained.empty(), "the model has no parameter that is trained");
  for (const Parameter* parameter : updated) {
    problems.unless(has(trained, parameter),
                    "the optimizer has a parameter of shape {} that the model does not train",
                    parameter->value.shape());
  }
}

}  // namespace

std::vector<std::string> engine_problems(nn::Module& model, const nn::Optimizer& optimizer,
                                         std::int64_t population, const EngineOptions& options) {
  Problems problems;
  check_privacy(problems, population, options);
  check_sizes(problems, population, options);
  check_parameters(problems, model, optimizer);
  return std::move(problems).all();
}

}  // namespace sotto
