#include "multilevel/learned_settings.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::multilevel {

namespace {

constexpr double max_change = 100, min_momentum = 1e-3;

void check_options(const LearnedSettingsOptions& options) {
  const auto& [eta, mu, lambda] = options.initial;
  check(options.learn_learning_rate || options.learn_momentum || options.learn_weight_decay,
        "LearnedSettings: nothing to learn");
  check(std::isfinite(eta) && eta > 0, "LearnedSettings: an initial learning rate of {}", eta);
  check(mu >= 0 && mu < 1 && (mu > 0 || !options.learn_momentum),
        "LearnedSettings: an initial momentum of {}", mu);
  check(std::isfinite(lambda) && lambda >= 0 && (lambda > 0 || !options.learn_weight_decay),
        "LearnedSettings: an initial weight decay of {}", lambda);
  check(std::isfinite(options.rate) && options.rate > 0, "LearnedSettings: a rate of {}",
        options.rate);
  check(options.discount >= 0 && options.discount <= 1,
        "LearnedSettings: a discount of {} is not in [0, 1]", options.discount);
}

// The logarithms that are learned: of eta, lambda and 1 - mu.
Tensor logarithms_of(const SgdSettings& settings) {
  const double decay = settings.weight_decay > 0 ? std::log(settings.weight_decay) : 0;
  return Tensor::from(
      std::vector{std::log(settings.learning_rate), decay, std::log1p(-settings.momentum)}, {3});
}

Gradients zeros_of(const std::vector<Parameter*>& parameters) { return ordered({}, parameters); }

// y = factor y
void scale_by(double factor, Gradients& y) {
  for (auto& [parameter, value] : y) axpby(0, value, factor, value);
}

// alpha a - beta b
Gradients difference(const Gradients& a, const Gradients& b, double alpha, double beta) {
  Gradients y = scaled(a, alpha);
  add_scaled(-beta, b, y);
  return y;
}

}  // namespace

LearnedSettings::LearnedSettings(std::vector<Parameter*> parameters, nn::Optimizer& optimizer,
                                 const LearnedSettingsOptions& options)
    : parameters_(std::move(parameters)),
      optimizer_(optimizer),
      options_((check_options(options), options)),
      settings_(options.initial),
      weights_(weights()),
      buffer_(zeros_of(parameters_)),
      logarithms_(logarithms_of(options.initial)),
      adam_(
          {{.parameters = {&logarithms_}, .rule = {.learning_rate = options.rate, .beta2 = 0.9}}}) {
  for (auto [tangent, learned] : {std::pair{&learning_rate_, options.learn_learning_rate},
                                  std::pair{&momentum_, options.learn_momentum},
                                  std::pair{&weight_decay_, options.learn_weight_decay}})
    *tangent = {learned, zeros_of(parameters_), zeros_of(parameters_)};
  apply();
}

Gradients LearnedSettings::weights() const {
  Gradients values;
  for (Parameter* parameter : parameters_) values.emplace_back(parameter, clone(parameter->value));
  return values;
}

void LearnedSettings::apply() {
  optimizer_.set_learning_rate(0, settings_.learning_rate);
  if (settings_.momentum > 0) optimizer_.set_momentum(settings_.momentum);
  optimizer_.set_weight_decay(settings_.weight_decay);
}

// c' = mu c + lambda z + (the setting's factor in b'), z' = z - eta c'
void LearnedSettings::advance(Tangent& tangent, const Gradients* factor) {
  if (!tangent.learned) return;
  scale_by(options_.discount * settings_.momentum, tangent.c);
  add_scaled(options_.discount * settings_.weight_decay, tangent.z, tangent.c);
  if (factor != nullptr) add_scaled(1, *factor, tangent.c);
  scale_by(options_.discount, tangent.z);
  add_scaled(-settings_.learning_rate, tangent.c, tangent.z);
}

void LearnedSettings::update(const Gradients& v) {
  const Gradients direction = ordered(v, parameters_);
  check(std::isfinite(norm(direction)), "LearnedSettings: a gradient of the upper loss of norm {}",
        norm(direction));
  const auto& [eta, mu, lambda] = settings_;
  const Gradients now = weights();
  const Gradients buffer = difference(weights_, now, 1 / eta, 1 / eta);
  gradient_ = difference(buffer, buffer_, 1, mu);
  add_scaled(-lambda, weights_, gradient_);
  advance(learning_rate_, nullptr);
  if (learning_rate_.learned) add_scaled(-1, buffer, learning_rate_.z);
  advance(momentum_, &buffer_);
  advance(weight_decay_, &weights_);
  derivatives_ = {inner_product(learning_rate_.z, direction), inner_product(momentum_.z, direction),
                  inner_product(weight_decay_.z, direction)};
  weights_ = now;
  buffer_ = buffer;
  move();
}

void LearnedSettings::move() {
  const auto& [eta, mu, lambda] = settings_;
  const std::vector<double> slopes = {eta * derivatives_.learning_rate,
                                      lambda * derivatives_.weight_decay,
                                      -(1 - mu) * derivatives_.momentum};
  adam_.step({{&logarithms_, Tensor::from(slopes, {3})}});
  auto* const log = logarithms_.value.data<double>();
  const std::vector<double> initial = logarithms_of(options_.initial).to_vector<double>();
  const double most = std::log(max_change);
  for (std::size_t i = 0; i < initial.size(); ++i)
    log[i] = std::clamp(log[i], initial[i] - most, initial[i] + most);
  log[2] = std::min(log[2], std::log1p(-min_momentum));
  take_logarithms();
}

void LearnedSettings::take_logarithms() {
  const auto* const log = logarithms_.value.data<double>();
  if (learning_rate_.learned) settings_.learning_rate = std::exp(log[0]);
  if (weight_decay_.learned) settings_.weight_decay = std::exp(log[1]);
  if (momentum_.learned) settings_.momentum = -std::expm1(log[2]);
  apply();
}

// The tensors of state() but Adam's, not copied.
std::map<std::string, Tensor> LearnedSettings::entries() const {
  std::map<std::string, Tensor> all{{"logarithms", logarithms_.value}};
  const auto add = [&](const std::string& name, const Gradients& of) {
    for (std::size_t i = 0; i < of.size(); ++i) all[fmt::format("{}.{}", name, i)] = of[i].second;
  };
  add("buffer", buffer_);
  const std::pair<const char*, const Tangent&> tangents[] = {
      {"learning_rate", learning_rate_}, {"momentum", momentum_}, {"weight_decay", weight_decay_}};
  for (const auto& [name, tangent] : tangents) {
    if (!tangent.learned || options_.discount == 0) continue;
    add(fmt::format("{}.z", name), tangent.z);
    add(fmt::format("{}.c", name), tangent.c);
  }
  return all;
}

std::map<std::string, Tensor> LearnedSettings::state() const {
  std::map<std::string, Tensor> all = entries();
  for (auto& [name, tensor] : all) tensor = clone(tensor);
  Parameter& logarithms = const_cast<Parameter&>(logarithms_);
  for (auto& [name, tensor] : adam_.state({{"logarithms", &logarithms}}))
    all["adam." + name] = tensor;
  return all;
}

void LearnedSettings::load_state(const std::map<std::string, Tensor>& state) {
  const std::map<std::string, Tensor> own = entries();
  for (const auto& [name, tensor] : own) {
    const auto found = state.find(name);
    check(found != state.end(), "LearnedSettings: the state has no {}", name);
    check(found->second.shape() == tensor.shape() && found->second.dtype() == tensor.dtype(),
          "LearnedSettings: {} is {} {} where {} {} is needed", name,
          sotto::name(found->second.dtype()), found->second.shape(), sotto::name(tensor.dtype()),
          tensor.shape());
  }
  std::map<std::string, Tensor> of_adam;
  for (const auto& [name, tensor] : state) {
    if (name.starts_with("adam.")) of_adam[name.substr(5)] = tensor;
  }
  adam_.load_state(of_adam, {{"logarithms", &logarithms_}});
  for (const auto& [name, tensor] : own) copy_into(state.at(name), tensor);
  weights_ = weights();
  take_logarithms();
}

}  // namespace sotto::multilevel
