// Optimizers around their rules: state, groups, schedules, and refused arguments.
// File tags: [engine]
#include <array>
#include <cmath>
#include <limits>

#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/schedule.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"
#include "tests/support/toy_parameter.h"

using namespace sotto;

namespace {

// A module of two parameters, one of them f64.
struct Pair : nn::Module {
  Var forward(const Var& x) override { return x; }
  void visit(const nn::Visitor& visitor) override {
    visitor("a", a);
    visitor("b", b);
  }
  Gradients gradients(int t) {
    return {{b.get(), grads(t + 100, Dtype::f64)}, {a.get(), grads(t, Dtype::f32)}};
  }
  std::vector<double> values() const {
    std::vector<double> all = to_dtype(a->value, Dtype::f64).to_vector<double>();
    for (const double v : b->value.to_vector<double>()) all.push_back(v);
    return all;
  }

  std::unique_ptr<Parameter> a = std::make_unique<Parameter>(starts(Dtype::f32));
  std::unique_ptr<Parameter> b = std::make_unique<Parameter>(starts(Dtype::f64));
};

// k steps, state and values handed to another model and optimizer, and k more steps equal 2k steps,
// bit by bit.
template <class Optimizer, class Rule>
void check_resumes(const Rule& rule) {
  Pair whole;
  Optimizer straight(whole, rule);
  for (int t = 1; t <= 2 * toy_steps; ++t) straight.step(whole.gradients(t));

  Pair first;
  Optimizer before(first, rule);
  for (int t = 1; t <= toy_steps; ++t) before.step(first.gradients(t));
  Pair second;
  second.a->value = clone(first.a->value);
  second.b->value = clone(first.b->value);
  Optimizer after(second, rule);
  // A state is a copy: later steps of the first optimizer do not change it.
  const auto state = before.state(first.named_parameters());
  before.step(first.gradients(0));
  after.load_state(state, second.named_parameters());
  before.load_state(state, first.named_parameters());
  before.step(first.gradients(0));
  for (int t = toy_steps + 1; t <= 2 * toy_steps; ++t) after.step(second.gradients(t));
  CHECK(second.values() == whole.values());
}

}  // namespace

TEST_CASE("training that is saved and resumed is the same bit by bit") {
  check_resumes<nn::Sgd>(nn::SgdRule{.learning_rate = 0.1, .momentum = 0.9});
  check_resumes<nn::Sgd>(nn::SgdRule{.learning_rate = 0.1});
  check_resumes<nn::Adam>(nn::AdamRule<false>{.learning_rate = 0.1, .amsgrad = true});
  check_resumes<nn::AdamW>(nn::AdamRule<true>{.learning_rate = 0.1});
  check_resumes<nn::RmsProp>(nn::RmsPropRule{.momentum = 0.5, .centered = true});
  check_resumes<nn::Adagrad>(nn::AdagradRule{.rate_decay = 0.1});
  check_resumes<nn::Adamax>(nn::AdamaxRule{});
  check_resumes<nn::Adadelta>(nn::AdadeltaRule{});
  check_resumes<nn::Lamb>(nn::LambRule{});
  check_resumes<nn::DpAdam>(nn::DpAdamRule{});
}

TEST_CASE("a bad gradient is refused and nothing is updated") {
  Pair model;
  nn::Sgd optimizer(model, {.momentum = 0.9});
  const std::vector<double> before = model.values();
  Parameter stranger(starts(Dtype::f32));
  const auto refused = [&](const Tensor& bad, Parameter* parameter, const std::string& text) {
    // The good gradient comes first: it must not be applied either.
    const Gradients gradients{{model.b.get(), grads(1, Dtype::f64)}, {parameter, bad}};
    const bool thrown = throws([&] { optimizer.step(gradients); }, text);
    return thrown && model.values() == before &&
           optimizer.state(model.named_parameters()).size() == 2;
  };
  Parameter* a = model.a.get();
  const Tensor good = grads(1, Dtype::f32);
  CHECK(refused(good, &stranger, "step: a gradient of shape (5) is of a parameter not in"));
  CHECK(refused(full({4}, 1), a, "step: gradient (4) for a parameter (5)"));
  CHECK(refused(grads(1, Dtype::f64), model.b.get(), "step: two gradients for one parameter"));
  CHECK(refused(Tensor(), a, "step: a gradient is undefined"));
  CHECK(refused(zeros({5}, Dtype::i64), a, "step: a gradient is i64"));
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    const Tensor grad = clone(good);
    copy_into(full({}, bad), grad.select(0, 3));
    CHECK(refused(grad, a, "step: the gradient of a parameter (5) is not finite"));
  }
  a->trainable = false;
  CHECK(refused(good, a, "step: a gradient for a frozen parameter (5)"));
  a->trainable = true;
  a->value = to_dtype(a->value, Dtype::f64);
  CHECK(throws(
      [&] {
        optimizer.step({{a, good}});
      },
      "step: a parameter (5) was f32 and is now f64"));
}

TEST_CASE("the largest finite gradient is finite") {
  Parameter parameter(zeros({2}));
  nn::Sgd optimizer({{{&parameter}, {.learning_rate = 1e-38}}});
  optimizer.step({{&parameter, full({2}, std::numeric_limits<float>::max())}});
  CHECK(parameter.value.select(0, 0).item() == Approx(-3.4028).epsilon(1e-4));
}

TEST_CASE("a parameter without a gradient stays, and its steps are not counted") {
  Pair model;
  nn::Adam optimizer(model);
  const std::vector<double> before = model.values();
  optimizer.step({{model.b.get(), grads(1, Dtype::f64)}});
  CHECK(model.values()[0] == before[0]);
  CHECK(model.values()[width] != before[width]);
  const auto state = optimizer.state(model.named_parameters());
  CHECK(state.at("a.steps").item() == 0);
  CHECK(state.at("b.steps").item() == 1);
  CHECK_FALSE(state.contains("a.mean"));
  CHECK(state.at("b.mean").dtype() == Dtype::f64);
}

TEST_CASE("a 16-bit gradient is converted to its parameter's type") {
  Parameter parameter(full({1}, 1));
  nn::Sgd optimizer({{{&parameter}, {.learning_rate = 0.5}}});
  optimizer.step({{&parameter, full({1}, 0.25, Dtype::bf16)}});
  CHECK(parameter.value.item() == 0.875);
}

TEST_CASE("groups have options and rates of their own and follow one schedule") {
  Pair model;
  nn::Sgd optimizer({{{model.a.get()}, {.learning_rate = 1}},
                     {{model.b.get()}, {.learning_rate = 0.5, .weight_decay = 1}}});
  optimizer.follow(nn::Schedule::exponential(0.5), 2);
  CHECK(optimizer.learning_rate(0) == 0.25);
  CHECK(optimizer.learning_rate(1) == 0.125);
  optimizer.follow(nn::Schedule::exponential(0.5), 1);
  CHECK(optimizer.learning_rate(1) == 0.25);
  optimizer.step({{model.a.get(), zeros({width})}, {model.b.get(), zeros({width}, Dtype::f64)}});
  CHECK(model.values()[0] == static_cast<float>(start(0)));
  CHECK(model.values()[width] == Approx(start(0) * 0.75));
  optimizer.set_learning_rate(2);
  CHECK(optimizer.learning_rate(1) == 2);
  CHECK(throws([&] { optimizer.set_learning_rate(2, 1); }, "set_learning_rate: group 2 of 2"));
  CHECK(throws([&] { optimizer.set_learning_rate(-1.0); }, "set_learning_rate: -1"));
}

TEST_CASE("a schedule moves the momentum of the rules that have one") {
  const nn::Schedule cycle = nn::Schedule::one_cycle(
      {.max_rate = 1, .total_steps = 10, .base_momentum = 0, .max_momentum = 0.5});
  Parameter parameter(zeros({1}));
  nn::Sgd sgd({{{&parameter}, {.momentum = 0.9}}});
  sgd.follow(cycle, 0);
  sgd.set_learning_rate(1);
  const Tensor one = full({1}, 1);
  sgd.step({{&parameter, one}});
  sgd.step({{&parameter, one}});
  CHECK(parameter.value.item() == -1 - 1.5);
  nn::Adadelta adadelta({{{&parameter}, {}}});
  CHECK(
      throws([&] { adadelta.follow(cycle, 0); }, "set_momentum: the update rule has no momentum"));
  nn::Adam adam({{{&parameter}, {}}});
  CHECK(throws([&] { adam.set_momentum(1); }, "adam: beta1 is 1 outside [0, 1)"));
}

TEST_CASE("the weight decay of every group can be set, and one out of range changes none") {
  Parameter one(full({1}, 1)), other(full({1}, 2));
  nn::Sgd sgd({{{&one}, {.learning_rate = 0.5}}, {{&other}, {.learning_rate = 0.25}}});
  sgd.set_weight_decay(0.5);
  CHECK(throws([&] { sgd.set_weight_decay(-1); }, "weight_decay"));
  sgd.step({{&one, full({1}, 0)}, {&other, full({1}, 0)}});
  CHECK(one.value.item() == 1 - 0.5 * 0.5);
  CHECK(other.value.item() == 2 - 0.25 * 0.5 * 2);
}

TEST_CASE("an optimizer over a module leaves frozen parameters out") {
  Pair model;
  model.a->trainable = false;
  nn::Sgd optimizer(model);
  CHECK(optimizer.state(model.named_parameters()).size() == 1);
  model.b->trainable = false;
  CHECK(throws([&] { nn::Sgd none(model); }, "optimizer: no parameters in group 0"));
}

TEST_CASE("a state that does not fit is refused by name and changes nothing") {
  Pair model;
  nn::Adam optimizer(model);
  optimizer.step(model.gradients(1));
  const auto names = model.named_parameters();
  const auto good = optimizer.state(names);
  optimizer.step(model.gradients(2));
  const auto refused = [&](const std::map<std::string, Tensor>& state, const std::string& text) {
    const bool thrown = throws([&] { optimizer.load_state(state, names); }, text);
    return thrown && optimizer.state(names).at("a.steps").item() == 2;
  };
  auto bad = good;
  bad.erase("b.mean_square");
  CHECK(refused(bad, "optimizer: the state has no b.mean_square"));
  bad = good;
  bad["b.momentum"] = zeros({width});
  CHECK(refused(bad, "optimizer: the state has b.momentum, which this optimizer does not keep"));
  bad = good;
  bad["b.mean"] = zeros({width});
  CHECK(refused(bad, "optimizer: b.mean is f32 (5) where f64 (5) is needed"));
  bad = good;
  bad["b.steps"] = Tensor::from(std::vector<std::int64_t>{-1}, {});
  CHECK(refused(bad, "optimizer: b.steps is -1"));
  bad["b.steps"] = zeros({});
  CHECK(refused(bad, "optimizer: b.steps is f32 ()"));
  CHECK(throws([&] { optimizer.state({}); }, "optimizer: no name for a parameter (5)"));
  optimizer.load_state(good, names);
  CHECK(optimizer.state(names).at("a.steps").item() == 1);
}

TEST_CASE("optimizers refuse options and parameters out of range") {
  Parameter parameter(zeros({2}));
  Parameter narrow(zeros({2}, Dtype::f16));
  const auto sgd = [&](const nn::SgdRule& rule) { nn::Sgd optimizer({{{&parameter}, rule}}); };
  CHECK(throws([&] { sgd({.learning_rate = -1}); }, "sgd: learning_rate is -1"));
  CHECK(throws([&] { sgd({.learning_rate = NAN}); }, "sgd: learning_rate is nan"));
  CHECK(throws([&] { sgd({.nesterov = true}); }, "sgd: nesterov with momentum 0"));
  CHECK(throws([&] { nn::Adam adam({{{&parameter}, {.beta2 = 1}}}); }, "adam: beta2 is 1"));
  CHECK(throws(
      [&] {
        nn::Sgd twice(std::vector<nn::Sgd::Group>{{{&parameter, &parameter}, {}}});
      },
      "is already in the optimizer"));
  CHECK(throws([&] { nn::Sgd half({{{&narrow}, {}}}); }, "is f16, not f32 or f64"));
}

namespace {

std::vector<double> many_normals(std::int64_t count, std::uint64_t stream) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = normal(PhiloxKey{9, stream}, i);
  return values;
}

// A parameter of many blocks is updated like the same numbers in many small parameters.
template <class Optimizer, class Rule>
void check_blocks(const Rule& rule) {
  constexpr std::int64_t size = 40960, piece = 8192;
  Parameter large(Tensor::from(many_normals(size, 0), {256, size / 256}));
  std::vector<std::unique_ptr<Parameter>> small;
  typename Optimizer::Group group{{}, rule};
  for (std::int64_t first = 0; first < size; first += piece) {
    const Tensor flat = large.value.view_as({-1}).value();
    small.push_back(std::make_unique<Parameter>(clone(flat.slice(0, first, first + piece))));
    group.parameters.push_back(small.back().get());
  }
  Optimizer whole(std::vector<typename Optimizer::Group>{{{&large}, rule}});
  Optimizer parts(std::vector<typename Optimizer::Group>{group});
  for (std::uint64_t step = 1; step < 4; ++step) {
    const Tensor gradient = Tensor::from(many_normals(size, step), {256, size / 256});
    whole.step({{&large, gradient}}, 0.1);
    Gradients of_parts;
    for (std::size_t k = 0; k < small.size(); ++k) {
      const auto first = static_cast<std::int64_t>(k) * piece;
      of_parts.emplace_back(small[k].get(),
                            gradient.view_as({-1}).value().slice(0, first, first + piece));
    }
    parts.step(of_parts, 0.1);
  }
  std::vector<double> together;
  for (const auto& parameter : small) {
    for (const double v : parameter->value.to_vector<double>()) together.push_back(v);
  }
  // SIMD remainders at other offsets round differently.
  double largest = 0;
  const std::vector<double> values = large.value.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i)
    largest = std::max(largest, std::abs(values[i] - together[i]) / (1 + std::abs(values[i])));
  CHECK(largest < f64_tolerance);
}

}  // namespace

TEST_CASE("a large parameter is updated in blocks as small ones are") {
  check_blocks<nn::Sgd>(nn::SgdRule{.momentum = 0.9, .nesterov = true});
  check_blocks<nn::Sgd>(nn::SgdRule{.weight_decay = 0.1});
  check_blocks<nn::Adam>(nn::AdamRule<false>{.weight_decay = 0.1, .amsgrad = true});
  check_blocks<nn::AdamW>(nn::AdamRule<true>{});
  check_blocks<nn::RmsProp>(nn::RmsPropRule{.momentum = 0.5, .centered = true});
  check_blocks<nn::Adagrad>(nn::AdagradRule{.initial = 0.1});
  check_blocks<nn::Adamax>(nn::AdamaxRule{});
  check_blocks<nn::Adadelta>(nn::AdadeltaRule{});
  check_blocks<nn::DpAdam>(nn::DpAdamRule{});
}
