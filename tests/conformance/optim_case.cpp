#include <cmath>
#include <memory>

#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/optimizer.h"
#include "tests/conformance/kinds.h"
#include "tests/conformance/schedules.h"

namespace sotto::conformance {

namespace {

void read(const Json& options, nn::SgdRule& rule) {
  rule.momentum = field<double>(options, "momentum");
  rule.dampening = field<double>(options, "dampening");
  rule.nesterov = field<bool>(options, "nesterov");
  rule.maximize = field<bool>(options, "maximize");
}

template <bool decoupled>
void read(const Json& options, nn::AdamRule<decoupled>& rule) {
  std::tie(rule.beta1, rule.beta2) = field<std::pair<double, double>>(options, "betas");
  rule.eps = field<double>(options, "eps");
  rule.amsgrad = field<bool>(options, "amsgrad");
}

void read(const Json& options, nn::RmsPropRule& rule) {
  rule.alpha = field<double>(options, "alpha");
  rule.eps = field<double>(options, "eps");
  rule.momentum = field<double>(options, "momentum");
  rule.centered = field<bool>(options, "centered");
}

void read(const Json& options, nn::AdagradRule& rule) {
  rule.rate_decay = field<double>(options, "lr_decay");
  rule.initial = field<double>(options, "initial_accumulator_value");
  rule.eps = field<double>(options, "eps");
}

void read(const Json& options, nn::AdamaxRule& rule) {
  std::tie(rule.beta1, rule.beta2) = field<std::pair<double, double>>(options, "betas");
  rule.eps = field<double>(options, "eps");
}

void read(const Json& options, nn::AdadeltaRule& rule) {
  rule.rho = field<double>(options, "rho");
  rule.eps = field<double>(options, "eps");
}

template <class Rule>
std::unique_ptr<nn::Optimizer> make(const std::vector<OptimizerGroup>& described) {
  std::vector<typename nn::RuleOptimizer<Rule>::Group> groups;
  for (const OptimizerGroup& group : described) {
    Rule rule;
    rule.learning_rate = field<double>(group.options, "lr");
    rule.weight_decay = field<double>(group.options, "weight_decay");
    read(group.options, rule);
    groups.push_back({group.parameters, rule});
  }
  return std::make_unique<nn::RuleOptimizer<Rule>>(groups);
}

std::vector<OptimizerGroup> read_groups(const Case& c, Parameters& parameters) {
  std::vector<OptimizerGroup> groups;
  for (const Json& entry : field<std::vector<Json>>(c.body, "groups")) {
    OptimizerGroup group{field<Json>(c.body, "optimizer"), {}};
    group.options.update(field<Json>(entry, "overrides"));
    for (const auto& name : field<std::vector<std::string>>(entry, "params")) {
      const auto found = parameters.find(name);
      if (found == parameters.end()) throw Malformed("no parameter " + name);
      group.parameters.push_back(&found->second);
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

using Series = std::vector<std::vector<double>>;  // [group][step]

void expect_series(const Case& c, const char* name, const Series& got, Comparison& comparison) {
  const auto expected = field<Series>(c.body, name);
  if (got.size() != expected.size())
    return comparison.fail(fmt::format("{}: {} groups", name, got.size()));
  const auto relative = field<double>(c.body, "lr_rtol");
  for (std::size_t group = 0; group < got.size(); ++group) {
    double largest = 0;
    for (const double value : expected[group]) largest = std::max(largest, std::abs(value));
    for (std::size_t k = 0; k < expected[group].size(); ++k) {
      const double error = std::abs(got[group].at(k) - expected[group][k]);
      if (error <= relative * std::abs(expected[group][k]) + 1e-12 * largest) continue;
      comparison.fail(fmt::format("{}: got {}, expected {} at step {} of group {}", name,
                                  got[group][k], expected[group][k], k, group));
    }
  }
}

// Rates and momenta of a schedule for each base rate.
void run_schedule(const Case& c, Comparison& comparison) {
  const nn::Schedule schedule = read_schedule(field<Json>(c.body, "scheduler"));
  const auto steps = field<std::int64_t>(c.body, "steps");
  const auto base = field<double>(field<Json>(c.body, "optimizer"), "lr");
  Series rates(1), momenta(1);
  for (std::int64_t k = 0; k < steps; ++k) {
    rates[0].push_back(schedule.value(k, base));
    if (const auto momentum = schedule.momentum(k)) momenta[0].push_back(*momentum);
  }
  expect_series(c, "expect_lr", rates, comparison);
  if (!c.body.contains("expect_momentum")) return;
  if (momenta[0].empty()) return comparison.fail("the schedule does not change the momentum");
  expect_series(c, "expect_momentum", momenta, comparison);
}

void step(const Case& c, nn::Optimizer& optimizer, Parameters& parameters, std::int64_t k) {
  Gradients gradients;
  for (auto& [name, parameter] : parameters) {
    const Tensor all = in_dtype(c.tensor("grad." + name).value, parameter.value.dtype());
    gradients.emplace_back(&parameter, contiguous(all.select(0, k)));
  }
  optimizer.step(gradients);
}

}  // namespace

std::unique_ptr<nn::Optimizer> make_optimizer(const std::string& type,
                                              const std::vector<OptimizerGroup>& groups) {
  if (type == "SGD") return make<nn::SgdRule>(groups);
  if (type == "Adam") return make<nn::AdamRule<false>>(groups);
  if (type == "AdamW") return make<nn::AdamRule<true>>(groups);
  if (type == "RMSprop") return make<nn::RmsPropRule>(groups);
  if (type == "Adagrad") return make<nn::AdagradRule>(groups);
  if (type == "Adamax") return make<nn::AdamaxRule>(groups);
  if (type == "Adadelta") return make<nn::AdadeltaRule>(groups);
  throw Malformed("type is " + type);
}

void run_optim(const Case& c, Dtype dtype, Comparison& comparison) {
  if (c.type == "schedule") return run_schedule(c, comparison);
  Parameters parameters;
  make_parameters(c, dtype, parameters);
  const auto optimizer = make_optimizer(c.type, read_groups(c, parameters));
  std::optional<nn::Schedule> schedule;
  const Json scheduler = field<Json>(c.body, "scheduler");
  if (!scheduler.is_null()) schedule = read_schedule(scheduler);
  const auto steps = field<std::int64_t>(c.body, "steps");
  Series rates(static_cast<std::size_t>(optimizer->groups()));
  Series momenta(rates.size());
  std::map<std::string, std::vector<Tensor>> trace;
  for (std::int64_t k = 0; k < steps; ++k) {
    if (schedule) optimizer->follow(*schedule, k);
    for (int group = 0; group < optimizer->groups(); ++group) {
      rates[static_cast<std::size_t>(group)].push_back(optimizer->learning_rate(group));
      const auto momentum = schedule ? schedule->momentum(k) : std::nullopt;
      if (momentum) momenta[static_cast<std::size_t>(group)].push_back(*momentum);
    }
    step(c, *optimizer, parameters, k);
    for (const auto& [name, parameter] : parameters) {
      trace[name].push_back(clone(parameter.value).unsqueeze(0));
    }
  }
  expect_series(c, "expect_lr", rates, comparison);
  if (c.body.contains("expect_momentum")) expect_series(c, "expect_momentum", momenta, comparison);
  for (const auto& [name, values] : trace) comparison.expect("param." + name, concat(values, 0));
}

}  // namespace sotto::conformance
