// The hypergradient of the clip bound: its parts are bounded, and it is the derivative of the
// clipped sum.
#include "dp/clipping/learned_clip_bound.h"

#include <cmath>

#include "autograd/ops.h"
#include "core/random/philox.h"
#include "dp/accounting/ledger_epsilon.h"
#include "dp/clipping/clipper.h"
#include "dp/clipping/sample_values.h"
#include "dp/engine/engine.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "multilevel/gradient_vectors.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/engine_training.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

// A small network in f64 with a slope, and a direction.
struct Net {
  class Model final : public nn::Module {
   public:
    Var forward(const Var& x) override { return layers(x); }
    void visit(const nn::Visitor& visitor) override {
      visitor("layers", layers);
      visitor("slope", slope);
    }
    nn::Sequential layers{nn::Linear(3, 4), nn::Tanh(), nn::Linear(4, 3)};
    std::unique_ptr<Parameter> slope = std::make_unique<Parameter>(full({1}, 0));
  };

  static constexpr std::int64_t rows = 12;
  Model model;
  Tensor x, labels;
  std::vector<Parameter*> parameters;
  Gradients direction;

  explicit Net(std::uint64_t seed) {
    PublicRandom random(seed);
    nn::manual_seed(seed);
    for (Parameter* parameter : model.layers.parameters())
      copy_into(uniform_values(random, parameter->value.shape()), parameter->value);
    model.to(Dtype::f64);
    x = scale(uniform_values(random, {rows, 3}), 3);
    labels = random_ids(random, {rows}, 3);
    parameters = model.layers.parameters();
    for (Parameter* parameter : parameters)
      direction.emplace_back(parameter, uniform_values(random, parameter->value.shape()));
  }
  Var losses(Tape& tape) { return cross_entropy(model(tape.input(x)), labels); }
  // The clipped sums of all rows, at the bound that `learned` has.
  Gradients clipped(const LearnedClipBound& learned) {
    std::vector<ClipGroup> groups = learned.groups();
    for (ClipGroup& group : groups) group.bound = learned.schedule().value(0, group.bound);
    Clipper clipper(groups);
    Tape tape({.private_data = true});
    clipper.add(tape, learned.with_slope(losses(tape)));
    return clipper.clipped_sums();
  }
  LearnedClipBound learned(double bound) {
    return LearnedClipBound(parameters, *model.slope, {.initial = bound, .share = 0.25});
  }
};

}  // namespace

TEST_CASE("what is released of the bound is its derivative of the clipped sum") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    for (const double bound : {0.2, 0.8, 3.0}) {
      CAPTURE(seed, bound);
      Net net(seed);
      const auto product = [&](double at) {
        LearnedClipBound learned = net.learned(at);
        learned.set_direction(net.direction);
        return multilevel::inner_product(multilevel::ordered(net.clipped(learned), net.parameters),
                                         net.direction);
      };
      LearnedClipBound learned = net.learned(bound);
      learned.set_direction(net.direction);
      learned.update(net.clipped(learned), net.direction);
      const double h = 1e-6 * bound;
      const double expected = (product(bound + h) - product(bound - h)) / (2 * h);
      CHECK(learned.derivative() == Approx(expected).epsilon(1e-5).margin(1e-6));
      // Adam's first step is its rate, towards the smaller upper loss.
      if (std::abs(expected) > 1e-3)
        CHECK(learned.bound() == Approx(bound * std::exp(expected > 0 ? 0.02 : -0.02)));
    }
  }
}

TEST_CASE("a row adds at most its share to the slope, and the losses keep their values") {
  constexpr double bound = 2;
  Net net(7);
  for (const double size : {1e-3, 1.0, 1e3}) {
    LearnedClipBound learned = net.learned(bound);
    Gradients v = multilevel::scaled(net.direction, size);
    learned.set_direction(v);
    Tape tape({.private_data = true});
    const Var plain = net.losses(tape), with = learned.with_slope(plain);
    CHECK(plain.value().to_vector<double>() == with.value().to_vector<double>());
    const Var slopes = gradient_products(with, {{net.model.slope.get(), full({1}, 1, Dtype::f64)}});
    const Var products = gradient_products(plain, v);
    const Var factors = clip_factors(plain, {net.parameters, bound});
    int within = 0;
    for (std::int64_t row = 0; row < Net::rows; ++row) {
      const auto at = [&](const Var& x) { return x.value().data<double>()[row]; };
      const double expected = at(factors) < 1 ? 0 : 0.25 * at(products) / multilevel::norm(v);
      CHECK(at(slopes) == Approx(expected).margin(1e-12));
      CHECK(std::abs(at(slopes)) <= 0.25 * bound);
      within += at(factors) < 1 ? 0 : 1;
    }
    CHECK(within > 0);
    CHECK(within < Net::rows);
  }
}

TEST_CASE("a training that learns its bound has the events of one that does not") {
  Net net(3);
  nn::Sgd optimizer(net.model, {.learning_rate = 0.1});
  LearnedClipBound learned = net.learned(0.8);
  const Ledger with, without;
  net.model.to(Dtype::f32);
  net.x = to_dtype(net.x, Dtype::f32);
  for (auto& [parameter, value] : net.direction) value = to_dtype(value, Dtype::f32);
  const EngineOptions plain{.noise_multiplier = 1.5, .steps = 4, .logical_batch = 6};
  EngineOptions options = plain;
  options.groups = learned.groups();
  options.bound_schedule = learned.schedule();
  nn::Sgd in_f32(net.model, {.learning_rate = 0.1});
  Engine engine(net.model, in_f32, Net::rows, with, options);
  learned.set_direction(net.direction);
  while (engine.can_step()) {
    engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
      const Tensor ids = Tensor::from(std::vector(rows.begin(), rows.end()), {std::ssize(rows)});
      const Var losses =
          cross_entropy(net.model(tape.input(gather(net.x, ids, 0))), gather(net.labels, ids, 0));
      return learned.with_slope(losses);
    });
    const std::vector<double> bounds = engine.clipper().bounds();
    CHECK(bounds[0] == Approx(learned.bound()));
    CHECK(bounds[1] == Approx(0.25 * learned.bound()));
    Gradients gradient = net.direction;
    gradient.emplace_back(net.model.slope.get(), full({1}, 0.5));
    learned.update(gradient, net.direction);
  }
  CHECK(learned.bound() != 0.8);
  Net other(3);
  other.model.to(Dtype::f32);
  nn::Sgd its(other.model, {.learning_rate = 0.1});
  Engine ordinary(other.model, its, Net::rows, without, plain);
  CHECK(with.history().plans == without.history().plans);
  CHECK(epsilon(with, 1e-5) == epsilon(with.new_run(), 1e-5));
  EventCounts events = with.events();
  CHECK(events == without.history().plans);
}

TEST_CASE("a bound goes on from a state to the same bits") {
  Net net(4);
  const auto gradient = [&](double slope) {
    Gradients all = net.direction;
    all.emplace_back(net.model.slope.get(), full({1}, slope, Dtype::f64));
    return all;
  };
  LearnedClipBound learned = net.learned(0.8), resumed = net.learned(0.8);
  for (LearnedClipBound* bound : {&learned, &resumed}) bound->set_direction(net.direction);
  learned.update(gradient(0.1), net.direction);
  learned.update(gradient(-5), net.direction);
  resumed.load_state(learned.state());
  CHECK(resumed.bound() == learned.bound());
  CHECK(resumed.schedule().value(3, 1) == learned.schedule().value(3, 1));
  learned.update(gradient(0.3), net.direction);
  resumed.update(gradient(0.3), net.direction);
  CHECK(resumed.bound() == learned.bound());
  CHECK(throws([&] { resumed.load_state({}); }, "the state has no logarithm"));
}

TEST_CASE("a bound that cannot be learned is refused with its values") {
  Net net(5);
  const auto refused = [&](const LearnedClipBoundOptions& options, const char* part) {
    return throws([&] { LearnedClipBound(net.parameters, *net.model.slope, options); }, part);
  };
  CHECK(refused({.initial = 0}, "an initial bound of 0"));
  CHECK(refused({.share = 0}, "a share of 0"));
  CHECK(refused({.share = 2}, "a share of 2"));
  CHECK(refused({.rate = -1}, "a rate of -1"));
  CHECK(throws([&] { LearnedClipBound(net.model.parameters(), *net.model.slope, {}); },
               "the slope is one of the parameters"));
  LearnedClipBound learned = net.learned(1);
  Tape tape({.private_data = true});
  const Var losses = net.losses(tape);
  CHECK(throws([&] { learned.with_slope(losses); }, "set_direction was not called"));
  CHECK(throws([&] { learned.set_direction({}); }, "a direction of norm 0"));
  learned.set_direction(net.direction);
  CHECK(throws([&] { learned.update(net.direction, net.direction); }, "without the slope"));
  CHECK(learned.bound() == 1);
}

}  // namespace sotto
