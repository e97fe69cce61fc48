// The order in which problems are solved, and the settings of each.
#include "multilevel/levels.h"

#include <cmath>
#include <tuple>
#include <utility>

#include "autograd/ops.h"
#include "core/allocator/allocator.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/profiling/peak_memory.h"
#include "nn/data/dataset.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/predict.h"
#include "tests/support/catch.h"
#include "tests/support/toy_problems.h"

namespace sotto::multilevel {
namespace {

TEST_CASE("a problem above steps after each cycle of the one below, from the end of warm-up on") {
  Toy toy;
  Problem a = toy.problem("a"), b = toy.problem("b");
  a.unroll_steps = 2;
  a.warmup_steps = 3;
  b.steps_per_turn = 2;
  Levels levels({a, b}, {.upper_to_lower = {{"b", "a"}}, .lower_to_upper = {{"a", "b"}}});
  levels.run(6);
  CHECK(toy.updates == Names{"a", "a", "a", "a", "b", "b", "a", "a", "b", "b"});
  CHECK(levels.steps("a") == 6);
  CHECK(levels.steps("b") == 4);
  CHECK(levels.iterations() == 6);
  CHECK_THROWS_AS(levels.steps("c"), std::invalid_argument);
}

TEST_CASE("a chain of three goes up as cycles end, and two below are waited for") {
  Toy chain;
  std::vector<Problem> three{chain.problem("top"), chain.problem("middle"), chain.problem("low")};
  three[1].unroll_steps = 2;
  three[2].unroll_steps = 2;
  Levels levels(three, {.upper_to_lower = {{"top", "low"}},
                        .lower_to_upper = {{"low", "middle"}, {"middle", "top"}}});
  levels.run(4);
  CHECK(chain.updates == Names{"low", "low", "middle", "low", "low", "middle", "top"});
  Toy fork;
  std::vector<Problem> two{fork.problem("up"), fork.problem("a"), fork.problem("b")};
  two[2].unroll_steps = 2;
  Levels forked(two, {.upper_to_lower = {{"up", "a"}, {"up", "b"}},
                      .lower_to_upper = {{"a", "up"}, {"b", "up"}}});
  forked.run(2);
  CHECK(fork.updates == Names{"a", "b", "a", "b", "up"});
}

TEST_CASE("one below may have two above, in the order of the edges") {
  Toy toy;
  const std::vector<Problem> all{toy.problem("low"), toy.problem("p"), toy.problem("q")};
  Levels levels(all,
                {.upper_to_lower = {{"p", "low"}}, .lower_to_upper = {{"low", "q"}, {"low", "p"}}});
  levels.step();
  CHECK(toy.updates == Names{"low", "q", "p"});
}

TEST_CASE("roll-back replaces a cycle's updates by one under the new upper parameters") {
  Toy toy, by_hand;
  std::vector<Problem> all{toy.problem("low"), toy.problem("up")};
  all[0].unroll_steps = 3;
  const LevelOptions options{
      .upper_to_lower = {{"up", "low"}}, .lower_to_upper = {{"low", "up"}}, .roll_back = true};
  double start = 0, momentum = 0;
  Levels levels(all, options);
  for (int cycle = 0; cycle < 3; ++cycle) {
    levels.run(3);
    const std::vector<double> x = toy.values();
    const double gradient = start - (3 * cycle + 2) - x[1];
    momentum = cycle == 0 ? gradient : 0.5 * momentum + gradient;
    start -= 0.25 * momentum;
    CHECK(x[0] == Approx(start).epsilon(1e-12));
  }
}

TEST_CASE("a cycle that is rolled back begins where the problem above had its turn") {
  Toy toy;
  std::vector<Problem> all{toy.problem("low"), toy.problem("up")};
  all[0].unroll_steps = 2;
  all[0].warmup_steps = 3;
  Levels levels(
      all,
      {.upper_to_lower = {{"up", "low"}}, .lower_to_upper = {{"low", "up"}}, .roll_back = true});
  levels.run(3);
  CHECK(toy.values()[0] != 0);
  CHECK(toy.updates == Names{"low", "low", "low"});
  levels.step();  // the first cycle, of four steps, becomes one step from the start, on batch 3
  CHECK(toy.updates == Names{"low", "low", "low", "low", "up", "low"});
  CHECK(toy.values()[0] == Approx(0.25 * (3 + toy.values()[1])).epsilon(1e-12));
}

TEST_CASE("a run stops after the step for which it is told to") {
  Toy toy;
  Levels levels({toy.problem("a")}, {});
  levels.run(10, [&] { return levels.iterations() < 4; });
  CHECK(levels.iterations() == 4);
  CHECK(levels.loss("a") > 0);
}

// Two levels with every part of a state: accumulated steps, a kept gradient or kept parameters.
struct Stateful {
  Toy toy;
  std::optional<Levels> levels;
  explicit Stateful(bool roll_back) {
    std::vector<Problem> all{toy.problem("low"), toy.problem("up")};
    all[0].unroll_steps = 3;
    all[0].schedule = nn::Schedule::exponential(0.9);
    all[0].max_norm = 1;
    if (!roll_back) all[1].steps_per_update = 2;
    all[0].response.keeps_gradient = true;
    levels.emplace(all, LevelOptions{.upper_to_lower = {{"up", "low"}},
                                     .lower_to_upper = {{"low", "up"}},
                                     .roll_back = roll_back});
  }
};

TEST_CASE("a state resumes to the same bits from any point of a cycle") {
  for (const bool roll_back : {false, true}) {
    Stateful whole(roll_back);
    std::vector<NamedTensors> states;
    std::vector<std::vector<double>> values;
    for (int k = 0; k < 14; ++k) {
      states.push_back(whole.levels->state());
      values.push_back(whole.toy.values());
      whole.levels->step();
    }
    for (std::size_t k = 0; k < states.size(); ++k) {
      Stateful resumed(roll_back);
      resumed.levels->load_state(states[k]);
      CHECK(resumed.levels->iterations() == static_cast<std::int64_t>(k));
      for (std::size_t j = k; j < states.size(); ++j) {
        CHECK(resumed.toy.values() == values[j]);
        resumed.levels->step();
      }
      CHECK(resumed.toy.values() == whole.toy.values());
    }
  }
}

TEST_CASE("a state of other problems is refused with the entry's name") {
  Stateful run(false);
  NamedTensors state = run.levels->state();
  const auto refused = [&](const NamedTensors& wrong) {
    CHECK_THROWS_AS(run.levels->load_state(wrong), std::invalid_argument);
  };
  NamedTensors missing = state, other = state, shape = state;
  missing.erase("low/variables/x");
  refused(missing);
  other.emplace("side/variables/x", zeros({1}));
  refused(other);
  shape.insert_or_assign("up/variables/x", zeros({2}, Dtype::f64));
  refused(shape);
  refused({});
}

TEST_CASE("steps_per_update takes the mean of gradients at different lower parameters") {
  Toy toy;
  std::vector<Problem> all{toy.problem("low"), toy.problem("up")};
  all[1].steps_per_update = 2;
  std::vector<double> lower, gradients;
  all[0].after_update = [&] { lower.push_back(toy[0].value.item()); };
  all[1].before_update = [&](Gradients& g) { gradients.push_back(g[0].second.item()); };
  Levels levels(all, {.lower_to_upper = {{"low", "up"}}});
  levels.run(2);
  REQUIRE(gradients.size() == 1);
  CHECK(gradients[0] == Approx(((0 - 0 - lower[0]) + (0 - 1 - lower[1])) / 2).epsilon(1e-12));
}

TEST_CASE("clipping bounds the norm of an update's gradient") {
  Toy toy;
  Problem problem = toy.problem("a");
  problem.max_norm = 0.125;
  problem.batches = [](std::int64_t) { return std::vector<std::int64_t>{8}; };
  Levels levels({problem}, {});
  levels.step();
  CHECK(toy[0].value.item() == Approx(0.25 * 0.125).epsilon(1e-6));
}

// A deep network below, and weights of its rows above.
struct Network {
  nn::Sequential model;
  Parameter u{zeros({1})};
  Tensor x, labels;
  std::unique_ptr<nn::Sgd> optimizer, upper;

  explicit Network(std::int64_t rows = 64, int depth = 6) {
    nn::manual_seed(3);
    for (int k = 0; k < depth; ++k) {
      model.add(nn::Linear(32, 32));
      model.add(nn::Tanh());
    }
    x = to_dtype(normal_tensor({rows, 32}), Dtype::f32);
    std::vector<std::int64_t> classes;
    for (std::int64_t k = 0; k < rows; ++k) classes.push_back(k % 32);
    labels = Tensor::from(classes, {rows});
    optimizer = std::make_unique<nn::Sgd>(model, nn::SgdRule{.learning_rate = 0.1});
    upper = std::make_unique<nn::Sgd>(std::vector<nn::Sgd::Group>{{{&u}, {.learning_rate = 0.1}}});
  }
  static Tensor normal_tensor(const Shape& shape) {
    std::vector<double> values;
    for (std::int64_t k = 0; k < shape.numel(); ++k)
      values.push_back(normal(PhiloxKey{5, 6}, static_cast<std::uint64_t>(k)));
    return Tensor::from(values, shape);
  }
  Var losses(Pass& pass) {
    const Tensor ids =
        Tensor::from(std::vector(pass.rows.begin(), pass.rows.end()), {std::ssize(pass.rows)});
    return cross_entropy(model(pass.tape.input(gather(x, ids, 0))), gather(labels, ids, 0));
  }
  std::vector<Problem> problems(const Response& response, const memory::Policy& policy = {}) {
    const auto all = [this](std::int64_t) {
      std::vector<std::int64_t> rows;
      for (std::int64_t k = 0; k < x.size(0); ++k) rows.push_back(k);
      return rows;
    };
    return {{.name = "model",
             .variables = model,
             .optimizer = *optimizer,
             .loss = [this](Pass& pass) { return losses(pass); },
             .weights = [this](Pass& pass, const Var& l) { return sigmoid(l * pass.tape.use(u)); },
             .batches = all,
             .response = response,
             .policy = policy},
            {.name = "weights",
             .variables = nn::NamedParameters{{"u", &u}},
             .optimizer = *upper,
             .loss = [this](Pass& pass) { return losses(pass); },
             .batches = all,
             .policy = policy}};
  }
  Levels levels(const Response& response, const memory::Policy& policy = {}) {
    std::vector<Problem> all = problems(response, policy);
    all[1].policy.checkpoint.reset();  // of the module below
    return Levels(all, both);
  }
  static const inline LevelOptions both{.upper_to_lower = {{"weights", "model"}},
                                        .lower_to_upper = {{"model", "weights"}}};
};

TEST_CASE("while a loss runs, the parameters of other problems are frozen, and not afterwards") {
  Network network;
  std::vector<Problem> all = network.problems(row_slopes());
  std::vector<bool> seen;
  all[0].weights = [&](Pass& pass, const Var& l) {
    seen.push_back(network.u.trainable);
    return sigmoid(l * pass.tape.use(network.u));
  };
  Levels levels(all, Network::both);
  levels.step();
  CHECK(seen == std::vector<bool>{false, true});  // the own step, and the response
  CHECK(network.u.trainable);
  for (const Parameter* parameter : network.model.parameters()) CHECK(parameter->trainable);
}

TEST_CASE("parameters that the optimizer does not hold do not move") {
  Network network;
  network.model[0].freeze();
  network.optimizer = std::make_unique<nn::Sgd>(network.model, nn::SgdRule{});
  const auto before = network.model[0].parameters()[0]->value.to_vector<float>();
  Levels levels = network.levels(finite_differences());
  levels.run(2);
  CHECK(network.model[0].parameters()[0]->value.to_vector<float>() == before);
  CHECK(!network.model[0].parameters()[0]->trainable);
}

std::size_t peak_of(const std::function<void()>& run) {
  memory::PeakMemoryTracker tracker(cpu);
  const std::size_t before = tracker.peak();
  run();
  return tracker.peak() - before;
}

TEST_CASE("an outer step peaks at no more than an ordinary one and three copies of the weights") {
  const std::size_t weights = 6 * (32 * 32 + 32) * sizeof(float);
  Network ordinary(2048), outer(2048), moved(2048);
  Levels alone({ordinary.problems(row_slopes())[0]}, {});
  Levels slopes = outer.levels(row_slopes()), differences = moved.levels(finite_differences());
  const std::size_t step = peak_of([&] { alone.step(); });
  CHECK(peak_of([&] { slopes.step(); }) < 1.05 * static_cast<double>(step + 3 * weights));
  CHECK(peak_of([&] { differences.step(); }) < 1.05 * static_cast<double>(step + 3 * weights));
}

TEST_CASE("both levels keep a memory limit, and checkpoints and pieces lower the peak") {
  const auto peak = [](const memory::Policy& policy) {
    Network network(512, 16);
    Levels levels = network.levels(row_slopes(), policy);
    levels.step();
    memory::PeakMemoryTracker tracker(cpu);
    tracker.restart();
    levels.step();
    return tracker.peak();
  };
  const std::size_t whole = peak({}), limit = whole * 2 / 3;
  CHECK(peak({.precision = Dtype::f32, .limit = limit}) <= limit);
  CHECK(peak({.accumulation = 4}) < whole * 2 / 3);
  CHECK(peak({.checkpoint = 8}) < whole * 3 / 4);
  CHECK(peak({.precision = Dtype::bf16}) < whole * 3 / 4);
}

TEST_CASE("validation in evaluation mode stops a run, and changes no bit of it") {
  const auto trained = [](std::int64_t iterations, bool validated) {
    Network network;
    network.model.add(nn::Dropout(0.25));
    Levels levels = network.levels(row_slopes());
    double best = 0;
    const auto improves = [&] {
      if (!validated) return true;
      const double accuracy = nn::accuracy(network.model, {network.x, network.labels});
      return accuracy >= std::exchange(best, std::max(best, accuracy));
    };
    levels.run(iterations, improves);
    return std::tuple{levels.iterations(), network.u.value.item(),
                      network.model.parameters()[0]->value.to_vector<float>()};
  };
  const auto stopped = trained(500, true);
  CHECK(std::get<0>(stopped) < 500);
  CHECK(trained(std::get<0>(stopped), false) == stopped);
}

TEST_CASE("physical batches, checkpoints and a limit change no update") {
  const auto trained = [](const memory::Policy& policy) {
    Network network;
    Levels levels = network.levels(row_slopes(), policy);
    levels.run(3);
    return std::pair{network.u.value.item(), network.model.parameters()[0]->value.at({0, 0})};
  };
  const auto [u, w] = trained({});
  for (const memory::Policy& policy :
       {memory::Policy{.physical_batch = 7}, memory::Policy{.accumulation = 4},
        memory::Policy{.checkpoint = 3},
        memory::Policy{.precision = Dtype::f32, .limit = 1 << 20}}) {
    const auto [other_u, other_w] = trained(policy);
    CHECK(other_u == Approx(u).epsilon(1e-3));
    CHECK(other_w == Approx(w).epsilon(1e-5));
  }
}

TEST_CASE("levels train in 16 bits, and skip an f16 update that overflows") {
  Network exact;
  Levels reference = exact.levels(row_slopes());
  reference.run(3);
  for (const Dtype precision : {Dtype::bf16, Dtype::f16}) {
    Network network;
    Levels levels = network.levels(row_slopes(), {.precision = precision});
    levels.run(3);
    CHECK(network.u.value.item() == Approx(exact.u.value.item()).epsilon(0.1));
  }
  Network network;
  network.x = scale(network.x, 1e30);
  std::vector<Problem> all = network.problems(row_slopes(), {.precision = Dtype::f16});
  int updates = 0;
  all[0].after_update = all[1].after_update = [&] { ++updates; };
  const auto before = network.model.parameters()[0]->value.to_vector<float>();
  Levels levels(all, Network::both);
  levels.step();
  CHECK(updates == 0);
  CHECK(network.model.parameters()[0]->value.to_vector<float>() == before);
}

TEST_CASE("shuffled batches are those of the loader, from any number on") {
  ShuffledBatches loader(10, 4, 9);
  const Batches batches = shuffled_batches(10, 4, 9);
  std::vector<std::vector<std::int64_t>> expected;
  for (int k = 0; k < 7; ++k) expected.push_back(loader.next());
  for (const std::int64_t k : {6, 0, 5, 2, 3})
    CHECK(batches(k) == expected[static_cast<std::size_t>(k)]);
}

}  // namespace
}  // namespace sotto::multilevel
