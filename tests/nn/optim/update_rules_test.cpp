// Update rules against their formulas, number by number.
#include "tests/support/toy_parameter.h"

using namespace sotto;

namespace {

// Runs the optimizer in both dtypes and compares with `formula`(x, g, t), which updates one number.
template <class Optimizer, class Rule, class Formula>
void check_against(const Rule& rule, const Formula& formula, double noise_variance = 0) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    Parameter parameter(starts(dtype));
    Optimizer optimizer({{{&parameter}, rule}});
    std::vector<Scalar> plain;
    for (int i = 0; i < width; ++i) plain.push_back({start(i)});
    for (int t = 1; t <= toy_steps; ++t) {
      optimizer.step({{&parameter, grads(t, dtype)}}, noise_variance);
      const auto got = to_dtype(parameter.value, Dtype::f64).template to_vector<double>();
      for (int i = 0; i < width; ++i) {
        Scalar& x = plain[static_cast<std::size_t>(i)];
        formula(x, slope(t, i), t);
        const double tolerance = dtype == Dtype::f32 ? f32_tolerance : f64_tolerance;
        CHECK(std::abs(got[static_cast<std::size_t>(i)] - x.p) < tolerance * (1 + std::abs(x.p)));
      }
    }
  }
}

template <bool decoupled>
auto adam_formula(const nn::AdamRule<decoupled>& r) {
  return [r](Scalar& x, double g, int t) {
    auto& [m, v, top] = x.state;
    if (decoupled)
      x.p -= r.learning_rate * r.weight_decay * x.p;
    else
      g += r.weight_decay * x.p;
    m = r.beta1 * m + (1 - r.beta1) * g;
    v = r.beta2 * v + (1 - r.beta2) * g * g;
    top = std::max(top, v);
    const double used = (r.amsgrad ? top : v) / (1 - std::pow(r.beta2, t));
    x.p -= r.learning_rate * m / (1 - std::pow(r.beta1, t)) / (std::sqrt(used) + r.eps);
  };
}

}  // namespace

TEST_CASE("stochastic gradient descent is its formula") {
  const auto formula = [](const nn::SgdRule& r) {
    return [r](Scalar& x, double g, int t) {
      double& b = x.state[0];
      if (r.maximize) g = -g;
      g += r.weight_decay * x.p;
      b = t == 1 ? g : r.momentum * b + (1 - r.dampening) * g;
      const double d = r.momentum == 0 ? g : r.nesterov ? g + r.momentum * b : b;
      x.p -= r.learning_rate * d;
    };
  };
  for (const nn::SgdRule& rule :
       {nn::SgdRule{.learning_rate = 0.3}, nn::SgdRule{.learning_rate = 0.1, .momentum = 0.9},
        nn::SgdRule{.momentum = 0.5, .dampening = 0.25, .weight_decay = 0.5},
        nn::SgdRule{.momentum = 0.9, .nesterov = true, .maximize = true}}) {
    check_against<nn::Sgd>(rule, formula(rule));
  }
}

TEST_CASE("Adam is its formula") {
  const nn::AdamRule<false> plain{.learning_rate = 0.1};
  check_against<nn::Adam>(plain, adam_formula(plain));
  const nn::AdamRule<false> largest{.learning_rate = 0.05,
                                    .beta1 = 0.5,
                                    .beta2 = 0.6,
                                    .eps = 0.01,
                                    .weight_decay = 0.3,
                                    .amsgrad = true};
  check_against<nn::Adam>(largest, adam_formula(largest));
}

TEST_CASE("AdamW decays the weights and not the gradient") {
  const nn::AdamRule<true> rule{.learning_rate = 0.1, .weight_decay = 0.5};
  check_against<nn::AdamW>(rule, adam_formula(rule));
  CHECK(nn::AdamRule<true>{}.weight_decay == 0.01);
  CHECK(nn::AdamRule<false>{}.weight_decay == 0);
}

TEST_CASE("RMSprop is its formula") {
  const auto formula = [](const nn::RmsPropRule& r) {
    return [r](Scalar& x, double g, int) {
      auto& [v, a, b] = x.state;
      g += r.weight_decay * x.p;
      v = r.alpha * v + (1 - r.alpha) * g * g;
      a = r.alpha * a + (1 - r.alpha) * g;
      const double s = std::sqrt(r.centered ? v - a * a : v) + r.eps;
      b = r.momentum * b + g / s;
      x.p -= r.learning_rate * b;
    };
  };
  for (const nn::RmsPropRule& rule :
       {nn::RmsPropRule{.alpha = 0.9},
        nn::RmsPropRule{.alpha = 0.7, .weight_decay = 0.2, .momentum = 0.6},
        nn::RmsPropRule{.alpha = 0.8, .eps = 1e-3, .momentum = 0.3, .centered = true}}) {
    check_against<nn::RmsProp>(rule, formula(rule));
  }
}

TEST_CASE("Adagrad, Adamax and Adadelta are their formulas") {
  const nn::AdagradRule grad{.rate_decay = 0.1, .weight_decay = 0.2, .initial = 0.5, .eps = 1e-3};
  check_against<nn::Adagrad>(grad, [&](Scalar& x, double g, int t) {
    g += grad.weight_decay * x.p;
    double& v = x.state[0];
    v = (t == 1 ? grad.initial : v) + g * g;
    const double rate = grad.learning_rate / (1 + (t - 1) * grad.rate_decay);
    x.p -= rate * g / (std::sqrt(v) + grad.eps);
  });
  const nn::AdamaxRule max{.learning_rate = 0.1, .beta2 = 0.7, .weight_decay = 0.2};
  check_against<nn::Adamax>(max, [&](Scalar& x, double g, int t) {
    g += max.weight_decay * x.p;
    auto& [m, u, unused] = x.state;
    m = max.beta1 * m + (1 - max.beta1) * g;
    u = std::max(max.beta2 * u, std::abs(g) + max.eps);
    x.p -= max.learning_rate / (1 - std::pow(max.beta1, t)) * m / u;
  });
  const nn::AdadeltaRule delta{.rho = 0.8, .eps = 1e-3, .weight_decay = 0.2};
  check_against<nn::Adadelta>(delta, [&](Scalar& x, double g, int) {
    g += delta.weight_decay * x.p;
    auto& [v, a, unused] = x.state;
    v = delta.rho * v + (1 - delta.rho) * g * g;
    const double d = std::sqrt((a + delta.eps) / (v + delta.eps)) * g;
    a = delta.rho * a + (1 - delta.rho) * d * d;
    x.p -= delta.learning_rate * d;
  });
}

TEST_CASE("Adam with the noise variance subtracted from its second moment is its formula") {
  constexpr double noise_variance = 0.3;
  const nn::DpAdamRule rule{.learning_rate = 0.1, .beta2 = 0.9, .floor = 0.05, .weight_decay = 0.2};
  int floored = 0, corrected = 0;
  const auto formula = [&](Scalar& x, double g, int t) {
    g += rule.weight_decay * x.p;
    auto& [m, v, unused] = x.state;
    m = rule.beta1 * m + (1 - rule.beta1) * g;
    v = rule.beta2 * v + (1 - rule.beta2) * g * g;
    const double own = v / (1 - std::pow(rule.beta2, t)) - noise_variance;
    ++(own < rule.floor ? floored : corrected);
    x.p -= rule.learning_rate * m / (1 - std::pow(rule.beta1, t)) /
           std::sqrt(std::max(own, rule.floor));
  };
  check_against<nn::DpAdam>(rule, formula, noise_variance);
  CHECK(floored > 0);
  CHECK(corrected > 0);
}

TEST_CASE("LAMB scales Adam's update to the norm of the parameter") {
  const nn::LambRule rule{.learning_rate = 0.1, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.2};
  for (const bool from_zero : {false, true}) {
    Parameter parameter(from_zero ? zeros({width}, Dtype::f64) : starts(Dtype::f64));
    nn::Lamb optimizer({{{&parameter}, rule}});
    std::vector<double> p = parameter.value.to_vector<double>(), m(width), v(width), r(width);
    for (int t = 1; t <= toy_steps; ++t) {
      optimizer.step({{&parameter, grads(t, Dtype::f64)}});
      double of_value = 0, of_update = 0;
      for (std::size_t i = 0; i < width; ++i) {
        const double g = slope(t, static_cast<int>(i));
        m[i] = rule.beta1 * m[i] + (1 - rule.beta1) * g;
        v[i] = rule.beta2 * v[i] + (1 - rule.beta2) * g * g;
        r[i] = m[i] / (1 - std::pow(rule.beta1, t)) /
                   (std::sqrt(v[i] / (1 - std::pow(rule.beta2, t))) + rule.eps) +
               rule.weight_decay * p[i];
        of_value += p[i] * p[i];
        of_update += r[i] * r[i];
      }
      const double trust = of_value > 0 ? std::sqrt(of_value / of_update) : 1;
      const std::vector<double> got = parameter.value.to_vector<double>();
      for (std::size_t i = 0; i < width; ++i) {
        p[i] -= rule.learning_rate * trust * r[i];
        CHECK(got[i] == Approx(p[i]).epsilon(f64_tolerance).margin(f64_tolerance));
      }
    }
  }
}
