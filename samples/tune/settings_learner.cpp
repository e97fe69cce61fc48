#include "samples/tune/settings_learner.h"

#include <algorithm>

#include "autograd/ops.h"
#include "autograd/sink.h"

namespace sotto::tune {

namespace {

// Public rows that a step sees.
constexpr std::int64_t rows_at_once = 250;

std::map<std::string, Tensor> part_of(const std::map<std::string, Tensor>& all,
                                      const std::string& prefix) {
  std::map<std::string, Tensor> part;
  for (const auto& [name, tensor] : all) {
    if (name.starts_with(prefix)) part[name.substr(prefix.size())] = tensor;
  }
  return part;
}

}  // namespace

Learning learning_of(const std::string& text) {
  Learning learning{.learning_rate = false, .weight_decay = false, .bound = false};
  if (text == "none") return learning;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string name = text.substr(at, end - at);
    bool* const setting = name == "lr"         ? &learning.learning_rate
                          : name == "momentum" ? &learning.momentum
                          : name == "wd"       ? &learning.weight_decay
                          : name == "bound"    ? &learning.bound
                                               : nullptr;
    check(setting != nullptr && !*setting,
          "--learn: {} is not a list of lr, momentum, wd and bound, nor none", text);
    *setting = true;
    at = end + 1;
  }
  return learning;
}

SettingsLearner::SettingsLearner(TunedNetwork& model, nn::Optimizer& optimizer,
                                 const samples::Settings& settings, const Learning& learning,
                                 const Dataset& clean)
    : model_(model), clean_(clean) {
  optimizer.set_weight_decay(learning.initial_weight_decay);
  // The gradient of the slope is found by LearnedSettings, if only with all settings at rest.
  const bool learns = learning.anything();
  if (learns || learning.bound) {
    settings_.emplace(
        model.parameters(), optimizer,
        multilevel::LearnedSettingsOptions{
            .initial = {settings.learning_rate, settings.momentum, learning.initial_weight_decay},
            .learn_learning_rate = learning.learning_rate || !learns,
            .learn_momentum = learning.momentum,
            .learn_weight_decay = learning.weight_decay,
            .rate = learns ? learning.rate : 1e-300});
  }
  if (learning.bound)
    bound_.emplace(model.network_parameters(), *model.slope(),
                   LearnedClipBoundOptions{.initial = settings.clip_bound, .rate = learning.rate});
}

void SettingsLearner::set(EngineOptions& options) {
  if (!bound_) return;
  options.groups = bound_->groups();
  options.bound_schedule = bound_->schedule();
}

Gradients SettingsLearner::direction(std::int64_t step) {
  const std::int64_t at_once = std::min(rows_at_once, clean_.size());
  const std::int64_t begin = step % (clean_.size() / at_once) * at_once;
  const Device device = model_.network_parameters().front()->value.device();
  const Dataset batch =
      clean_.slice(begin, begin + at_once).map([device](const Tensor& x) { return x.to(device); });
  Tape tape;
  SumSink sums;
  tape.backward(mean(cross_entropy(model_(tape.input(batch.inputs)), batch.targets)), sums);
  return sums.gradients();
}

void SettingsLearner::begin_step(std::int64_t step, const Engine* /*engine*/) {
  if (bound_ && !has_direction_) bound_->set_direction(direction(step));
  has_direction_ = true;
}

// A resumed run makes the same direction again: it depends on the weights and the step alone.
void SettingsLearner::end_step(std::int64_t step) {
  if (!settings_) return;
  const Gradients v = direction(step + 1);
  settings_->update(v);
  if (!bound_) return;
  bound_->update(settings_->gradient(), v);
  bound_->set_direction(v);
}

Var SettingsLearner::losses(const Var& losses) {
  return bound_ ? bound_->with_slope(losses) : losses;
}

std::vector<std::pair<std::string, std::string>> SettingsLearner::learned() const {
  std::vector<std::pair<std::string, std::string>> all;
  if (settings_) {
    const multilevel::SgdSettings& now = settings_->settings();
    all = {{"final learning rate", fmt::format("{:.4g}", now.learning_rate)},
           {"final momentum", fmt::format("{:.4g}", now.momentum)},
           {"final weight decay", fmt::format("{:.4g}", now.weight_decay)}};
  }
  if (bound_) all.emplace_back("final clip bound", fmt::format("{:.4g}", bound_->bound()));
  return all;
}

std::map<std::string, Tensor> SettingsLearner::state() const {
  std::map<std::string, Tensor> all;
  const auto add = [&](const char* prefix, const std::map<std::string, Tensor>& part) {
    for (const auto& [name, tensor] : part) all[prefix + name] = tensor;
  };
  if (settings_) add("settings.", settings_->state());
  if (bound_) add("bound.", bound_->state());
  return all;
}

void SettingsLearner::load_state(const std::map<std::string, Tensor>& state) {
  if (settings_) settings_->load_state(part_of(state, "settings."));
  if (bound_) bound_->load_state(part_of(state, "bound."));
}

}  // namespace sotto::tune
