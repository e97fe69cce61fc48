// Hypergradients of SGD's settings against differences of whole runs, and what is done with them.
#include "multilevel/learned_settings.h"

#include <cmath>

#include "autograd/ops.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

namespace sotto::multilevel {
namespace {

constexpr int steps = 6;
const SgdSettings initial{.learning_rate = 0.3, .momentum = 0.7, .weight_decay = 0.05};

// Two parameters, gradients that are fixed in advance as released ones are, and the upper loss
// M(w) = |w - goal|^4 / 4.
struct Training {
  std::vector<Tensor> start, goal;
  std::vector<std::vector<Tensor>> released{steps};
  Parameter first, second;
  std::vector<Parameter*> parameters{&first, &second};

  explicit Training(std::uint64_t seed)
      : first(full({2, 3}, 0, Dtype::f64)), second(full({4}, 0, Dtype::f64)) {
    PublicRandom random(seed);
    const auto values = [&] {
      return std::vector{uniform_values(random, {2, 3}), uniform_values(random, {4})};
    };
    start = values();
    goal = values();
    for (auto& gradients : released) gradients = values();
    reset();
  }
  void reset() {
    first.value = clone(start[0]);
    second.value = clone(start[1]);
  }
  nn::Sgd optimizer(const SgdSettings& settings) {
    return nn::Sgd({{.parameters = parameters,
                     .rule = {.learning_rate = settings.learning_rate,
                              .momentum = settings.momentum,
                              .weight_decay = settings.weight_decay}}});
  }
  void step(nn::Optimizer& by, int k) {
    by.step({{&first, released[k][0]}, {&second, released[k][1]}});
  }
  double square() const {
    double sum = 0;
    for (std::size_t i = 0; i < 2; ++i) {
      const Tensor away = sub(parameters[i]->value, goal[i]);
      sum += sotto::sum(mul(away, away)).item();
    }
    return sum;
  }
  double upper() const { return square() * square() / 4; }
  Gradients slope() const {
    Gradients v;
    for (std::size_t i = 0; i < 2; ++i)
      v.emplace_back(parameters[i], scale(sub(parameters[i]->value, goal[i]), square()));
    return v;
  }
  // The upper loss after all steps, of which those from `changed` on are made with `settings`.
  double after(const SgdSettings& settings, int changed) {
    reset();
    nn::Sgd by = optimizer(initial);
    for (int k = 0; k < steps; ++k) {
      if (k == changed) {
        by.set_learning_rate(settings.learning_rate);
        by.set_momentum(settings.momentum);
        by.set_weight_decay(settings.weight_decay);
      }
      step(by, k);
    }
    return upper();
  }
};

// The derivative of Training::after by one setting, by differences of fourth order.
double difference(Training& problem, double SgdSettings::*setting, int changed) {
  constexpr double h = 1e-3;
  const auto at = [&](double by) {
    SgdSettings settings = initial;
    settings.*setting += by;
    return problem.after(settings, changed);
  };
  return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
}

// Learns so slowly that all settings keep their values.
LearnedSettingsOptions still(double discount) {
  return {.initial = initial,
          .learn_momentum = true,
          .learn_weight_decay = true,
          .rate = 1e-300,
          .discount = discount};
}

}  // namespace

TEST_CASE("hypergradients are the derivatives of whole runs, of the last step or of all") {
  for (const int changed : {steps - 1, 0}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      CAPTURE(changed, seed);
      Training problem(seed);
      nn::Sgd by = problem.optimizer(initial);
      LearnedSettings learned(problem.parameters, by, still(changed == 0 ? 1 : 0));
      for (int k = 0; k < steps; ++k) {
        problem.step(by, k);
        learned.update(problem.slope());
      }
      const SgdSettings found = learned.derivatives();
      for (double SgdSettings::*setting :
           {&SgdSettings::learning_rate, &SgdSettings::momentum, &SgdSettings::weight_decay}) {
        const double expected = difference(problem, setting, changed);
        CHECK(found.*setting == Approx(expected).epsilon(1e-9));
      }
    }
  }
}

TEST_CASE("the gradient that a step got is found again in the weights") {
  Training problem(1);
  nn::Sgd by = problem.optimizer(initial);
  LearnedSettings learned(problem.parameters, by, still(0));
  for (int k = 0; k < steps; ++k) {
    problem.step(by, k);
    const Gradients v = problem.slope();
    learned.update(v);
    const Gradients released = {{&problem.first, problem.released[k][0]},
                                {&problem.second, problem.released[k][1]}};
    CHECK(inner_product(learned.gradient(), v) == Approx(inner_product(released, v)).epsilon(1e-9));
  }
}

TEST_CASE("settings move against their hypergradients, and the optimizer follows") {
  Training problem(2);
  nn::Sgd by = problem.optimizer(initial);
  LearnedSettings learned(problem.parameters, by,
                          {.initial = initial, .learn_momentum = true, .learn_weight_decay = true});
  CHECK(by.learning_rate() == initial.learning_rate);
  problem.step(by, 0);
  learned.update(problem.slope());
  // Adam's first step is its rate, in the sign of the derivative.
  const auto moved = [](double derivative) { return std::exp(derivative > 0 ? -0.02 : 0.02); };
  const SgdSettings &now = learned.settings(), &slope = learned.derivatives();
  CHECK(now.learning_rate ==
        Approx(initial.learning_rate * moved(slope.learning_rate)).epsilon(1e-5));
  CHECK(now.weight_decay == Approx(initial.weight_decay * moved(slope.weight_decay)).epsilon(1e-5));
  CHECK(slope.momentum == 0);  // there was no momentum before the first step
  CHECK(by.learning_rate() == now.learning_rate);
  problem.step(by, 1);
  learned.update(problem.slope());
  CHECK(slope.momentum != 0);
  CHECK(1 - now.momentum == Approx((1 - initial.momentum) * moved(-slope.momentum)).epsilon(0.02));
  CHECK(now.momentum != initial.momentum);
  // A step with the new settings: from the weights alone the gradient is found again only if the
  // optimizer has them.
  problem.step(by, 2);
  const Gradients v = problem.slope();
  learned.update(v);
  const Gradients released = {{&problem.first, problem.released[2][0]},
                              {&problem.second, problem.released[2][1]}};
  CHECK(inner_product(learned.gradient(), v) == Approx(inner_product(released, v)).epsilon(1e-9));
}

TEST_CASE("settings stay within a factor 100, and those that are not learned stay") {
  Training problem(3);
  nn::Sgd by = problem.optimizer(initial);
  LearnedSettings learned(problem.parameters, by, {.initial = initial, .rate = 10});
  for (int k = 0; k < steps; ++k) {
    problem.step(by, k);
    learned.update(problem.slope());
    const double factor = learned.settings().learning_rate / initial.learning_rate;
    CHECK(std::abs(std::log(factor)) == Approx(std::log(100)));
    CHECK(learned.settings().momentum == initial.momentum);
    CHECK(learned.settings().weight_decay == initial.weight_decay);
    CHECK(learned.derivatives().weight_decay == 0);
  }
}

TEST_CASE("learning goes on from a state to the same bits") {
  for (const double discount : {0.0, 0.9}) {
    LearnedSettingsOptions options = still(discount);
    options.rate = 0.1;
    Training problem(4);
    nn::Sgd by = problem.optimizer(initial);
    LearnedSettings learned(problem.parameters, by, options);
    const nn::NamedParameters names = {{"first", &problem.first}, {"second", &problem.second}};
    std::map<std::string, Tensor> of_learned, of_optimizer;
    std::vector<Tensor> weights;
    const auto run = [&](LearnedSettings& with, nn::Optimizer& optimizer, int from, int to) {
      for (int k = from; k < to; ++k) {
        problem.step(optimizer, k);
        with.update(problem.slope());
      }
    };
    run(learned, by, 0, 3);
    of_learned = learned.state();
    of_optimizer = by.state(names);
    weights = {clone(problem.first.value), clone(problem.second.value)};
    run(learned, by, 3, steps);
    const SgdSettings whole = learned.settings();
    problem.first.value = clone(weights[0]);
    problem.second.value = clone(weights[1]);
    nn::Sgd other = problem.optimizer(initial);
    other.load_state(of_optimizer, names);
    LearnedSettings resumed(problem.parameters, other, options);
    resumed.load_state(of_learned);
    run(resumed, other, 3, steps);
    CHECK(resumed.settings().learning_rate == whole.learning_rate);
    CHECK(resumed.settings().momentum == whole.momentum);
    CHECK(resumed.settings().weight_decay == whole.weight_decay);
    of_learned.erase("buffer.1");
    CHECK(throws([&] { resumed.load_state(of_learned); }, "the state has no buffer.1"));
  }
}

TEST_CASE("settings that cannot be learned are refused with their values") {
  Training problem(5);
  nn::Sgd by = problem.optimizer(initial);
  const auto refused = [&](LearnedSettingsOptions options, const char* part) {
    return throws([&] { LearnedSettings(problem.parameters, by, options); }, part);
  };
  CHECK(refused({.initial = initial, .learn_learning_rate = false}, "nothing to learn"));
  CHECK(refused({.initial = {}}, "an initial learning rate of 0"));
  CHECK(refused({.initial = {0.1, 0, 0}, .learn_momentum = true}, "an initial momentum of 0"));
  CHECK(refused({.initial = {0.1, 1, 0}}, "an initial momentum of 1"));
  CHECK(refused({.initial = {0.1, 0, 0}, .learn_weight_decay = true}, "weight decay of 0"));
  CHECK(refused({.initial = initial, .rate = 0}, "a rate of 0"));
  CHECK(refused({.initial = initial, .discount = 1.5}, "a discount of 1.5"));
  LearnedSettings learned(problem.parameters, by, {.initial = initial});
  problem.step(by, 0);
  Gradients v = problem.slope();
  v[0].second = full({2, 3}, std::nan(""), Dtype::f64);
  CHECK(throws([&] { learned.update(v); }, "a gradient of the upper loss of norm"));
  CHECK(learned.settings().learning_rate == initial.learning_rate);
}

}  // namespace sotto::multilevel
