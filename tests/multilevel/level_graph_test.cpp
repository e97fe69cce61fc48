// Everything that is wrong with problems and edges.
#include "multilevel/level_graph.h"

#include "core/ranks/one_rank.h"
#include "tests/support/catch.h"
#include "tests/support/toy_problems.h"

namespace sotto::multilevel {
namespace {

// What is told about these problems and edges.
std::string told(const std::vector<Problem>& problems, const LevelOptions& options) {
  try {
    plan_levels(problems, options);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return {};
}

TEST_CASE("everything wrong with the problems and edges is told at once") {
  Toy toy;
  Problem a = toy.problem("a"), b = toy.problem("b"), c = toy.problem("c");
  a.unroll_steps = 0;
  a.response = {};
  b.loss = nullptr;
  b.response = row_slopes();
  c.variables = b.variables;
  Problem d = toy.problem("d/"), e = toy.problem("e");
  nn::Sgd nothing(std::vector<nn::Sgd::Group>{});
  d.max_norm = -1;
  d.warmup_steps = -2;
  d.steps_per_turn = 0;
  d.policy.checkpoint = 1;
  d.policy.accumulation = 0;
  d.batches = nullptr;
  Problem f{.name = "f",
            .variables = e.variables.parameters,
            .optimizer = nothing,
            .loss = e.loss,
            .batches = e.batches};
  f.policy.limit = 1 << 20;
  c.steps_per_update = 2;
  const LevelOptions options{.upper_to_lower = {{"b", "a"}, {"b", "c"}, {"z", "a"}},
                             .lower_to_upper = {{"a", "b"}, {"a", "b"}, {"c", "c"}, {"c", "e"}},
                             .roll_back = true,
                             .ranks = std::make_shared<OneRank>()};
  const std::string text = told({a, b, c, d, e, f, toy.problem("a")}, options);
  for (const char* part : {"a: unroll_steps is 0",
                           "b: no loss",
                           "b: its response needs the weights of rows",
                           "c: x is a variable of b, too",
                           "c: its optimizer holds a parameter",
                           "two problems are called a",
                           "lower_to_upper: a -> b twice",
                           "lower_to_upper: c -> itself",
                           "upper_to_lower: z -> a names no problem",
                           "b acts on c, but no edges",
                           "a: a problem above acts on it, and it has no response",
                           "the name \"d/\" is empty or has a slash",
                           "d/: max_norm is -1",
                           "d/: warmup_steps is -2",
                           "d/: steps_per_turn is 0",
                           "d/: activation checkpoints need a module",
                           "d/: no batches",
                           "d/: accumulation",
                           "f: its optimizer holds nothing",
                           "f: ranks with a memory limit need a precision",
                           "c: roll_back with steps_per_update 2"}) {
    INFO(part << "\nin: " << text);
    CHECK(text.find(part) != std::string::npos);
  }
}

TEST_CASE("rows are kept within one step, in f32, and without a limit") {
  Toy toy;
  std::vector<Problem> all{toy.problem("a"), toy.problem("b"), toy.problem("c"), toy.problem("d")};
  all[0].response = row_slopes({.of_step = true});
  all[0].weights = [](Pass&, const Var& losses) { return losses; };
  const LevelOptions chain{.upper_to_lower = {{"c", "a"}},
                           .lower_to_upper = {{"a", "b"}, {"b", "c"}}};
  CHECK(told(all, chain).empty());
  LevelOptions fork = chain;
  fork.lower_to_upper.push_back({"d", "c"});
  CHECK(told(all, fork) ==
        "Levels: a: a response that keeps rows, and c waits for other problems, too");
  for (const memory::Policy& policy :
       {memory::Policy{.precision = Dtype::f16}, memory::Policy{.limit = 1 << 30}}) {
    all[0].policy = policy;
    CHECK(told(all, chain) ==
          "Levels: a: a response that keeps rows goes neither with f16 nor with a memory limit");
  }
}

TEST_CASE("the derivative of an Adam step wants Adam, with the same options") {
  Toy toy;
  Parameter x(zeros({1}));
  const nn::AdamRule<false> rule{.learning_rate = 0.1, .beta1 = 0.8};
  nn::Adam adam(std::vector<nn::Adam::Group>{{{&x}, rule}});
  nn::AdamW decoupled(std::vector<nn::AdamW::Group>{{{&x}, {.beta1 = 0.8}}});
  const auto told_of = [&](nn::Optimizer& optimizer, const Response& response) {
    return told({{.name = "a",
                  .variables = nn::NamedParameters{{"x", &x}},
                  .optimizer = optimizer,
                  .loss = [](Pass& pass) { return pass.tape.constant(zeros({1})); },
                  .batches = [](std::int64_t number) { return std::vector{number}; },
                  .response = response}},
                {});
  };
  CHECK(told_of(adam, adam_derivative(rule)).empty());
  adam.set_learning_rate(0.01);  // a schedule
  CHECK(told_of(adam, adam_derivative(rule)).empty());
  const std::string wrong =
      "Levels: a: adam_derivative, and its optimizer is not Adam with the same options";
  CHECK(told_of(adam, adam_derivative({.beta1 = 0.9})) == wrong);
  CHECK(told_of(decoupled, adam_derivative(rule)) == wrong);
}

TEST_CASE("edges in a circle are told by the names on it") {
  Toy toy;
  const std::vector<Problem> all{toy.problem("a"), toy.problem("b"), toy.problem("c")};
  const std::string text = told(all, {.lower_to_upper = {{"a", "b"}, {"b", "c"}, {"c", "b"}}});
  CHECK(text == "Levels: lower_to_upper: b -> c -> b is a cycle");
  CHECK(told(all, {.lower_to_upper = {{"a", "b"}, {"b", "c"}, {"a", "c"}}}).empty());
  CHECK(told({}, {}) == "Levels: no problems");
}

}  // namespace
}  // namespace sotto::multilevel
