#include "dp/audit/canaries.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "autograd/ops/elementwise.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/shape_ops.h"
#include "core/error.h"
#include "core/random/philox.h"
#include "core/random/secret_random.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

std::size_t canaries_of(const CanaryTrace& trace) {
  check(!trace.empty(), "CanaryTrace: no steps");
  for (const auto& step : trace) {
    check(step.size() == trace[0].size(), "CanaryTrace: {} canaries in one step, {} in another",
          trace[0].size(), step.size());
  }
  return trace[0].size();
}

}  // namespace

DiracCanaries::DiracCanaries(const std::vector<Parameter*>& parameters,
                             const CanaryOptions& options)
    : DiracCanaries(parameters, options, SecretRandom()) {}

DiracCanaries::DiracCanaries(const std::vector<Parameter*>& parameters,
                             const CanaryOptions& options, SecretRandom coins)
    : options_(options) {
  std::int64_t elements = 0;
  for (Parameter* parameter : parameters) {
    if (!parameter->trainable) continue;
    parameters_.push_back(parameter);
    elements += parameter->value.numel();
  }
  check(options.count >= 1 && options.count <= elements,
        "DiracCanaries: {} canaries on {} trainable elements", options.count, elements);
  check(options.population >= 1, "DiracCanaries: the population is {}", options.population);
  check(options.magnitude > 0 && std::isfinite(options.magnitude),
        "DiracCanaries: the magnitude is {}", options.magnitude);
  std::vector<std::int64_t> order(static_cast<std::size_t>(elements));
  std::iota(order.begin(), order.end(), 0);
  PublicRandom(options.seed).shuffle(order);
  for (std::int64_t k = 0; k < options.count; ++k) {
    CanaryElement chosen{0, order[static_cast<std::size_t>(k)]};
    while (chosen.element >= parameters_[chosen.parameter]->value.numel())
      chosen.element -= parameters_[chosen.parameter++]->value.numel();
    elements_.push_back(chosen);
    included_.push_back(coins.below(2) == 1);
  }
}

std::vector<std::int64_t> DiracCanaries::rows_of_unit(std::int64_t unit) const {
  check(unit >= 0 && unit < units(), "DiracCanaries: unit {} of {}", unit, units());
  const std::int64_t canary = unit - options_.population;
  if (canary >= 0 && !included_[static_cast<std::size_t>(canary)]) return {};
  return {unit};
}

std::vector<std::int64_t> DiracCanaries::data_rows(std::span<const std::int64_t> rows) const {
  std::vector<std::int64_t> data(rows.begin(), rows.end());
  for (std::int64_t& row : data) row = row < options_.population ? row : 0;
  return data;
}

// The canaries' losses [n]; 0 in other rows. At least one row must be a canary's.
Var DiracCanaries::own_losses(Tape& tape, std::span<const std::int64_t> rows) const {
  const auto n = static_cast<std::int64_t>(rows.size());
  std::optional<Var> sum;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    std::vector<std::int64_t> ids(rows.size(), 0);
    std::vector<double> weights(rows.size(), 0);
    for (std::size_t k = 0; k < rows.size(); ++k) {
      if (rows[k] < options_.population) continue;
      const CanaryElement& own = elements_[static_cast<std::size_t>(rows[k] - options_.population)];
      if (own.parameter != p) continue;
      ids[k] = own.element;
      weights[k] = options_.magnitude;
    }
    if (std::all_of(weights.begin(), weights.end(), [](double w) { return w == 0; })) continue;
    const Parameter& parameter = *parameters_[p];
    const Var table = reshape(tape.use(*parameters_[p]), {parameter.value.numel(), 1});
    const Var picked = embedding(table, tape.input(Tensor::from(ids, {n})));
    const Tensor scale = to_dtype(Tensor::from(weights, {n}), parameter.value.dtype());
    const Var part = reshape(picked, {n}) * tape.input(scale);
    sum = sum ? *sum + part : part;
  }
  return sum.value();
}

Var DiracCanaries::losses(const Var& ordinary, std::span<const std::int64_t> rows) const {
  const auto n = static_cast<std::int64_t>(rows.size());
  check(ordinary.shape() == Shape{n}, "DiracCanaries: losses of shape {} for {} rows",
        ordinary.shape(), n);
  std::vector<float> is_canary;
  for (const std::int64_t row : rows) {
    check(row >= 0 && row < units(), "DiracCanaries: row {} of {}", row, units());
    is_canary.push_back(row < options_.population ? 0 : 1);
  }
  if (std::find(is_canary.begin(), is_canary.end(), 1.0F) == is_canary.end()) return ordinary;
  Tape& tape = ordinary.tape();
  const Var mask = tape.input(Tensor::from(is_canary, {n}));
  return where(mask, own_losses(tape, rows), ordinary);
}

std::vector<double> DiracCanaries::values() const {
  Gradients now;
  for (Parameter* parameter : parameters_) now.emplace_back(parameter, parameter->value);
  return elements(now);
}

std::vector<double> DiracCanaries::elements(const Gradients& gradients) const {
  std::vector<double> found(elements_.size(), 0.0);
  for (const auto& [parameter, gradient] : gradients) {
    const std::vector<double> all = to_dtype(gradient, Dtype::f64).to_vector<double>();
    for (std::size_t k = 0; k < elements_.size(); ++k) {
      const auto& [owner, element] = elements_[k];
      if (parameters_[owner] == parameter) found[k] = all[static_cast<std::size_t>(element)];
    }
  }
  return found;
}

std::vector<double> likelihood_ratios(const CanaryTrace& trace, double noise_multiplier,
                                      double sampling_rate) {
  check(noise_multiplier > 0 && std::isfinite(noise_multiplier),
        "likelihood_ratios: noise multiplier {} is not a finite number > 0", noise_multiplier);
  check(sampling_rate > 0 && sampling_rate <= 1,
        "likelihood_ratios: sampling rate {} is not in (0, 1]", sampling_rate);
  std::vector<double> scores(canaries_of(trace), 0.0);
  for (const auto& step : trace) {
    for (std::size_t k = 0; k < scores.size(); ++k) {
      const double loss = (step[k] - 0.5) / noise_multiplier / noise_multiplier;
      // ln(1 - q + q e^loss), in the form that does not overflow.
      scores[k] += loss > 0 ? loss + std::log(sampling_rate + (1 - sampling_rate) * std::exp(-loss))
                            : std::log1p(sampling_rate * std::expm1(loss));
    }
  }
  return scores;
}

std::vector<double> spreads(const CanaryTrace& trace) {
  std::vector<double> mean(canaries_of(trace), 0.0), scores(mean);
  for (const auto& step : trace) {
    for (std::size_t k = 0; k < mean.size(); ++k)
      mean[k] += step[k] / static_cast<double>(trace.size());
  }
  for (const auto& step : trace) {
    for (std::size_t k = 0; k < mean.size(); ++k)
      scores[k] += (step[k] - mean[k]) * (step[k] - mean[k]);
  }
  return scores;
}

}  // namespace sotto
