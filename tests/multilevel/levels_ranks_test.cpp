// Data parallel levels: ranks that are threads make the updates of one process.
#include <mutex>

#include "autograd/ops.h"
#include "core/random/philox.h"
#include "core/ranks/thread_ranks.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "multilevel/levels.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "tests/support/catch.h"

namespace sotto::multilevel {
namespace {

constexpr std::int64_t rows = 11, inputs = 4, classes = 3;

Tensor random_inputs(Dtype dtype) {
  std::vector<double> values;
  for (std::int64_t k = 0; k < rows * inputs; ++k)
    values.push_back(normal(PhiloxKey{8, 9}, static_cast<std::uint64_t>(k)));
  return to_dtype(Tensor::from(values, {rows, inputs}), dtype);
}

// What a run ends with: every hypergradient, and all variables.
struct Outcome {
  std::vector<double> gradients, values;
  double loss = 0;
};

// A classifier with dropout, weights of its rows, and a decay that acts on its loss directly.
class Training {
 public:
  explicit Training(Dtype dtype) : x_(random_inputs(dtype)) {
    nn::manual_seed(4);
    model_.add(nn::Linear(inputs, 6));
    model_.add(nn::Tanh());
    model_.add(nn::Dropout(0.25));
    model_.add(nn::Linear(6, classes));
    for (Parameter* parameter : model_.parameters())
      parameter->value = to_dtype(parameter->value, dtype);
    u_.value = Tensor::from({0.3, -0.7}, {2}, dtype);
    decay_.value = Tensor::from({0.1}, {1}, dtype);
  }

  Outcome run(const Response& response, const std::shared_ptr<Ranks>& ranks,
              const memory::Policy& policy = {}) {
    nn::Sgd below(model_, {.learning_rate = 0.1, .momentum = 0.5});
    nn::Sgd above({{{&u_, &decay_}, {.learning_rate = 0.5}}});
    Problem model{.name = "model",
                  .variables = model_,
                  .optimizer = below,
                  .loss = [this](Pass& pass) { return losses(pass, true); },
                  .weights = [this](Pass& pass, const Var& l) { return weights(pass, l); },
                  .batches = [](std::int64_t k) { return batch(k, rows - 2); },
                  .response = response,
                  .max_norm = 1,
                  .policy = policy};
    if (response.needs_weights) model.loss = [this](Pass& pass) { return losses(pass, false); };
    Problem settings{.name = "settings",
                     .variables = nn::NamedParameters{{"u", &u_}, {"decay", &decay_}},
                     .optimizer = above,
                     .loss = [this](Pass& pass) { return losses(pass, false); },
                     .batches = [](std::int64_t k) { return batch(k + 3, 2); },
                     .before_update = [this](const Gradients& all) { note(all); }};
    Levels levels({model, settings}, {.upper_to_lower = {{"settings", "model"}},
                                      .lower_to_upper = {{"model", "settings"}},
                                      .ranks = ranks});
    levels.run(3);
    for (const Parameter* parameter : model_.parameters()) append(parameter->value, found_.values);
    append(u_.value, found_.values);
    found_.loss = levels.loss("model");
    return found_;
  }
  Parameter& first() { return *model_.parameters()[0]; }

 private:
  static std::vector<std::int64_t> batch(std::int64_t number, std::int64_t size) {
    std::vector<std::int64_t> all;
    for (std::int64_t k = 0; k < size; ++k) all.push_back((5 * number + 3 * k) % rows);
    return all;
  }
  static void append(const Tensor& x, std::vector<double>& values) {
    const auto more = to_dtype(x, Dtype::f64).to_vector<double>();
    values.insert(values.end(), more.begin(), more.end());
  }
  void note(const Gradients& all) {
    for (const auto& [parameter, gradient] : all) append(gradient, found_.gradients);
  }
  Var losses(Pass& pass, bool decayed) {
    const Tensor ids =
        Tensor::from(std::vector(pass.rows.begin(), pass.rows.end()), {std::ssize(pass.rows)});
    std::vector<std::int64_t> labels;
    for (const std::int64_t row : pass.rows) labels.push_back(row % classes);
    const Var logits = model_(pass.tape.input(gather(x_, ids, 0)));
    const Var each = cross_entropy(logits, Tensor::from(labels, {std::ssize(labels)}));
    if (!decayed) return each;
    return each + sum(square(pass.tape.use(first()))) * select(pass.tape.use(decay_), 0, 0);
  }
  Var weights(Pass& pass, const Var& l) {
    const Var u = pass.tape.use(u_);
    return sigmoid(select(u, 0, 0) + select(u, 0, 1) * l);
  }

  Tensor x_;
  nn::Sequential model_;
  Parameter u_{zeros({2})}, decay_{zeros({1})};
  Outcome found_;
};

std::shared_ptr<Ranks> borrowed(Ranks& ranks) { return {std::shared_ptr<void>(), &ranks}; }

std::vector<Outcome> on_ranks(int size, Dtype dtype, const Response& response,
                              const memory::Policy& policy = {}) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(size));
  std::mutex one_at_a_time;  // manual_seed() is of the process
  on_thread_ranks(size, [&](Ranks& ranks) {
    const auto rank = static_cast<std::size_t>(ranks.rank());
    std::optional<Training> training;
    {
      const std::scoped_lock lock(one_at_a_time);
      training.emplace(dtype);
    }
    outcomes[rank] = training->run(response, borrowed(ranks), policy);
  });
  return outcomes;
}

void check_near(const std::vector<double>& got, const std::vector<double>& expected,
                double relative) {
  REQUIRE(got.size() == expected.size());
  double off = 0, norm = 0;
  for (std::size_t k = 0; k < got.size(); ++k) {
    off += (got[k] - expected[k]) * (got[k] - expected[k]);
    norm += expected[k] * expected[k];
  }
  CHECK(std::sqrt(off) <= relative * std::sqrt(norm));
}

std::vector<std::pair<const char*, Response>> responses() {
  using Matrix = ConjugateGradients::Matrix;
  return {{"row slopes", row_slopes()},
          {"row slopes of the step", row_slopes({.of_step = true})},
          {"differences", finite_differences()},
          {"neumann", neumann({.iterations = 2, .rate = 0.1})},
          {"cg", conjugate_gradients({.iterations = 2, .damping = 1})},
          {"fisher", conjugate_gradients(
                         {.iterations = 2, .damping = 1, .matrix = Matrix::empirical_fisher})}};
}

TEST_CASE("one, two and three ranks have the hypergradients of one process, all the same bits") {
  for (const auto& [name, response] : responses()) {
    const Outcome whole = Training(Dtype::f64).run(response, nullptr);
    REQUIRE(whole.gradients.size() == 9);
    for (const int size : {1, 2, 3}) {
      INFO(name << " on " << size);
      const std::vector<Outcome> found = on_ranks(size, Dtype::f64, response);
      for (const Outcome& outcome : found) {
        CHECK(outcome.gradients == found[0].gradients);
        CHECK(outcome.values == found[0].values);
        check_near(outcome.gradients, whole.gradients, 1e-9);
        check_near(outcome.values, whole.values, 1e-9);
        CHECK(outcome.loss == Approx(whole.loss).epsilon(1e-9));
      }
      if (size == 1) CHECK(found[0].gradients == whole.gradients);
    }
  }
}

TEST_CASE("ranks train in pieces and in 16 bits as one process does") {
  for (const memory::Policy& policy :
       {memory::Policy{.physical_batch = 2}, memory::Policy{.accumulation = 2},
        memory::Policy{.precision = Dtype::f32, .limit = std::size_t{1} << 30},
        memory::Policy{.precision = Dtype::f16}}) {
    const double relative = policy.precision == Dtype::f16 ? 0.02 : 1e-4;
    const Outcome whole = Training(Dtype::f32).run(row_slopes(), nullptr, policy);
    const std::vector<Outcome> found = on_ranks(3, Dtype::f32, row_slopes(), policy);
    for (const Outcome& outcome : found) {
      CHECK(outcome.values == found[0].values);
      check_near(outcome.gradients, whole.gradients, relative);
    }
  }
}

TEST_CASE("all ranks start from the values of rank 0") {
  std::vector<double> values[2];
  on_thread_ranks(2, [&](Ranks& ranks) {
    Parameter w(full({2}, 1.0 + ranks.rank(), Dtype::f64));
    nn::Sgd step({{{&w}, {.learning_rate = 0.1}}});
    const auto loss = [&w](Pass& pass) {
      return square(pass.tape.input(zeros({std::ssize(pass.rows)}, Dtype::f64)) +
                    sum(pass.tape.use(w)));
    };
    Levels levels({{.name = "w",
                    .variables = nn::NamedParameters{{"w", &w}},
                    .optimizer = step,
                    .loss = loss,
                    .batches =
                        [](std::int64_t) {
                          return std::vector<std::int64_t>{0, 1, 2};
                        }}},
                  {.ranks = borrowed(ranks)});
    levels.step();
    values[ranks.rank()] = w.value.to_vector<double>();
  });
  CHECK(values[0] == std::vector<double>{1 - 0.4, 1 - 0.4});
  CHECK(values[1] == values[0]);
}

}  // namespace
}  // namespace sotto::multilevel
