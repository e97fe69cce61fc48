#include "dp/clipping/learned_clip_bound.h"

#include <algorithm>
#include <cmath>

#include "autograd/ops.h"
#include "core/error.h"
#include "dp/clipping/sample_values.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "multilevel/gradient_vectors.h"

namespace sotto {

namespace {

const double max_logarithm = std::log(100);

void check_options(const std::vector<Parameter*>& parameters, const Parameter& slope,
                   const LearnedClipBoundOptions& options) {
  const auto& [initial, share, rate] = options;
  check(std::ranges::find(parameters, &slope) == parameters.end(),
        "LearnedClipBound: the slope is one of the parameters");
  check(slope.value.shape() == Shape{1}, "LearnedClipBound: a slope of shape {}",
        slope.value.shape());
  check(std::isfinite(initial) && initial > 0, "LearnedClipBound: an initial bound of {}", initial);
  check(share > 0 && share <= 1, "LearnedClipBound: a share of {} is not in (0, 1]", share);
  check(std::isfinite(rate) && rate > 0, "LearnedClipBound: a rate of {}", rate);
}

}  // namespace

LearnedClipBound::LearnedClipBound(std::vector<Parameter*> parameters, Parameter& slope,
                                   const LearnedClipBoundOptions& options)
    : parameters_(std::move(parameters)),
      slope_((check_options(parameters_, slope, options), slope)),
      options_(options),
      logarithm_(full({1}, 0, Dtype::f64)),
      adam_(
          {{.parameters = {&logarithm_}, .rule = {.learning_rate = options.rate, .beta2 = 0.9}}}) {}

std::vector<ClipGroup> LearnedClipBound::groups() const {
  return {{parameters_, options_.initial}, {{&slope_}, options_.share * options_.initial}};
}

nn::Schedule LearnedClipBound::schedule() const {
  return nn::Schedule(
      [factor = factor_](std::int64_t /*step*/, double base) { return base * *factor; });
}

void LearnedClipBound::set_direction(const Gradients& v) {
  Gradients direction = multilevel::ordered(v, parameters_);
  const double norm = multilevel::norm(direction);
  check(std::isfinite(norm) && norm > 0, "LearnedClipBound: a direction of norm {}", norm);
  direction_ = std::move(direction);
  norm_ = norm;
}

Var LearnedClipBound::with_slope(const Var& losses) const {
  check(norm_ > 0, "LearnedClipBound: set_direction was not called");
  const Var products = gradient_products(losses, direction_);
  const Var factors = clip_factors(losses, {parameters_, bound()});
  const Var one = 1 + 0 * detach(losses);
  const Var within = 1 - greater(one, factors);
  const Var slope = losses.tape().use(slope_);
  return losses + (slope - detach(slope)) * (within * products * (options_.share / norm_));
}

void LearnedClipBound::update(const Gradients& gradient, const Gradients& v) {
  const Tensor slope = multilevel::ordered(gradient, {&slope_}).front().second;
  const auto has_slope = [&](const auto& entry) { return entry.first == &slope_; };
  check(std::ranges::any_of(gradient, has_slope), "LearnedClipBound: a gradient without the slope");
  const Gradients own = multilevel::ordered(gradient, parameters_);
  const double within = to_dtype(slope, Dtype::f64).item() * norm_ / options_.share;
  const double derivative =
      (multilevel::inner_product(own, multilevel::ordered(v, parameters_)) - within) / bound();
  check(std::isfinite(derivative), "LearnedClipBound: a derivative of {}", derivative);
  derivative_ = derivative;
  // The upper loss falls along -g.
  adam_.step({{&logarithm_, full({1}, -bound() * derivative, Dtype::f64)}});
  follow();
}

void LearnedClipBound::follow() {
  double& logarithm = *logarithm_.value.data<double>();
  logarithm = std::clamp(logarithm, -max_logarithm, max_logarithm);
  *factor_ = std::exp(logarithm);
}

std::map<std::string, Tensor> LearnedClipBound::state() const {
  std::map<std::string, Tensor> all;
  auto& logarithm = const_cast<Parameter&>(logarithm_);
  for (const auto& [name, tensor] : adam_.state({{"bound", &logarithm}})) all[name] = tensor;
  all["logarithm"] = clone(logarithm_.value);
  return all;
}

void LearnedClipBound::load_state(const std::map<std::string, Tensor>& state) {
  std::map<std::string, Tensor> of_adam = state;
  const auto logarithm = of_adam.extract("logarithm");
  check(!logarithm.empty() && logarithm.mapped().dtype() == Dtype::f64 &&
            logarithm.mapped().shape() == Shape{1},
        "LearnedClipBound: the state has no logarithm, or one of another shape");
  adam_.load_state(of_adam, {{"bound", &logarithm_}});
  copy_into(logarithm.mapped(), logarithm_.value);
  follow();
}

}  // namespace sotto
