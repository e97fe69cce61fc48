// Weights of rows: exact slopes, detached values, and differences of whole runs.
#include <cmath>

#include "multilevel/responses.h"
#include "tests/support/level_problems.h"

namespace sotto::multilevel {
namespace {

// Rows of a linear model with weights sigmoid(u_0 + u_1 loss) of their losses.
struct Reweighting {
  static constexpr std::int64_t rows = 7, inputs = 3;
  Tensor x = tensor(random_matrix(71, rows, inputs)), y = tensor(random_matrix(72, rows, 1));
  Parameter w{tensor(random_matrix(73, inputs, 1))}, u{tensor(random_matrix(74, 2, 1))};
  Target target{75, inputs};
  Vector upper_gradient;
  std::unique_ptr<nn::Sgd> w_step, u_step;

  Tensor rows_of(const Tensor& all, std::span<const std::int64_t> rows) {
    return gather(all, Tensor::from(std::vector(rows.begin(), rows.end()), {std::ssize(rows)}), 0);
  }
  Var losses(Pass& pass) {
    const Var off = matmul(pass.tape.input(rows_of(x, pass.rows)), pass.tape.use(w)) -
                    pass.tape.input(rows_of(y, pass.rows));
    return square(off);
  }
  Var weights(Pass& pass, const Var& losses) {
    const Var settings = pass.tape.use(u);
    return sigmoid(select(settings, 0, 0) + select(settings, 0, 1) * losses);
  }

  // With `in_loss` the weights are part of the loss, by detach().
  std::vector<Problem> problems(const Response& response, double rate, bool in_loss,
                                const memory::Policy& policy = {}) {
    w_step = std::make_unique<nn::Sgd>(sgd_group(w, rate));
    u_step = std::make_unique<nn::Sgd>(sgd_group(u, 0.1));
    const auto all = [](std::int64_t) { return std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6}; };
    Problem lower{.name = "lower",
                  .variables = nn::NamedParameters{{"w", &w}},
                  .optimizer = *w_step,
                  .loss = [this](Pass& pass) { return losses(pass); },
                  .weights = [this](Pass& pass, const Var& l) { return weights(pass, l); },
                  .batches = all,
                  .response = response,
                  .policy = policy};
    if (in_loss) {
      lower.weights = {};
      lower.loss = [this](Pass& pass) {
        const Var l = losses(pass);
        return weights(pass, pass.detach(l)) * l;
      };
    }
    const auto without_direct = [this](Gradients& gradients) {
      upper_gradient = vector(gradients[0].second) - vector(u.value);
    };
    return {lower,
            {.name = "upper",
             .variables = nn::NamedParameters{{"u", &u}},
             .optimizer = *u_step,
             .loss = target.loss(w, u),
             .batches = one_row,
             .before_update = without_direct}};
  }
  Vector gradient(const Response& response, double rate, bool in_loss,
                  const memory::Policy& policy = {}) {
    Levels levels(problems(response, rate, in_loss, policy),
                  {.upper_to_lower = {{"upper", "lower"}}, .lower_to_upper = {{"lower", "upper"}}});
    levels.step();
    return upper_gradient;
  }
};

TEST_CASE("row slopes, and differences that hold detached values, are the exact derivative") {
  constexpr double rate = 0.1;
  const Vector slopes = Reweighting().gradient(row_slopes(), rate, false);
  Reweighting at;  // -(1 / n) sum_i <g_i, v> dw_i / du at the new w
  at.gradient(row_slopes(), rate, false);
  const Vector v = at.target.v(at.w);
  const Vector start = random_matrix(74, 2, 1);
  Vector expected = Vector::Zero(2);
  for (std::int64_t i = 0; i < Reweighting::rows; ++i) {
    const double off = vector(at.x[i]).dot(vector(at.w.value)) - at.y[i].item();
    const double product = 2 * off * vector(at.x[i]).dot(v);
    const double weight = 1 / (1 + std::exp(-start[0] - start[1] * off * off));
    expected -= product * weight * (1 - weight) / Reweighting::rows * Vector{{1, off * off}};
  }
  check_close(slopes, expected);
  const Vector held = Reweighting().gradient(finite_differences(), rate, true);
  check_close(held, expected);
  const Vector held_weights = Reweighting().gradient(finite_differences(), rate, false);
  check_close(held_weights, expected);
  const Vector moved =
      Reweighting().gradient(finite_differences({.hold_detached = false}), rate, true);
  CHECK((moved - expected).norm() > 0.01 * expected.norm());
}

TEST_CASE("physical batches change no hypergradient") {
  for (const bool in_loss : {false, true}) {
    const Response response = in_loss ? neumann({.rate = 0.1}) : row_slopes();
    const Vector whole = Reweighting().gradient(response, 0.1, in_loss);
    for (const std::int64_t rows : {1, 2, 3}) {
      const Vector parts = Reweighting().gradient(response, 0.1, in_loss, {.physical_batch = rows});
      CHECK((parts - whole).norm() <= 1e-12 * whole.norm());
    }
  }
}

// The upper loss after one lower step from u moved by `by`.
double loss_after_step(int element, double by, double rate) {
  Reweighting run;
  run.u.value.data<double>()[element] += by;
  std::vector<Problem> problems = run.problems(row_slopes(), rate, false);
  problems[1].loss = [&](Pass& pass) {  // without the direct part
    const Var off = matmul(pass.tape.constant(tensor(run.target.p)), pass.tape.use(run.w)) -
                    pass.tape.constant(tensor(run.target.y));
    return reshape(affine(sum(square(off)), 0.5, 0), {1});
  };
  Levels levels(problems, {.lower_to_upper = {{"lower", "upper"}}});
  levels.step();
  return levels.loss("upper");
}

TEST_CASE("row slopes are the derivative of a whole run as the rate goes to zero") {
  constexpr double step = 1e-3;
  // At the rate itself the weights' gradient is taken at the new parameters, not the old ones.
  double before = 0;
  for (const double rate : {1e-2, 1e-3}) {
    Vector exact(2);
    for (int k = 0; k < 2; ++k) {
      exact[k] = (8 * (loss_after_step(k, step, rate) - loss_after_step(k, -step, rate)) -
                  (loss_after_step(k, 2 * step, rate) - loss_after_step(k, -2 * step, rate))) /
                 (12 * step * rate);
    }
    const Vector got = Reweighting().gradient(row_slopes(), rate, false);
    const double off = (got - exact).norm() / exact.norm();
    CHECK(off < 10 * rate);
    if (before > 0) CHECK(off < 0.2 * before);
    before = off;
  }
}

TEST_CASE("a response leaves the lower parameters as they were, to the bit") {
  Reweighting run;
  std::vector<Problem> problems = run.problems(neumann({.iterations = 3, .rate = 0.1}), 0.1, true);
  std::vector<double> after_update, after_response;
  problems[0].after_update = [&] { after_update = run.w.value.to_vector<double>(); };
  problems[1].after_update = [&] { after_response = run.w.value.to_vector<double>(); };
  Levels levels(problems,
                {.upper_to_lower = {{"upper", "lower"}}, .lower_to_upper = {{"lower", "upper"}}});
  levels.run(3);
  CHECK(after_update == after_response);
  CHECK(!after_update.empty());
}

TEST_CASE("row slopes refuse a loss that reads the upper parameters itself") {
  Reweighting run;
  std::vector<Problem> problems = run.problems(row_slopes(), 0.1, false);
  problems[0].loss = [&](Pass& pass) {
    return run.losses(pass) * select(pass.tape.use(run.u), 0, 0);
  };
  Levels levels(problems,
                {.upper_to_lower = {{"upper", "lower"}}, .lower_to_upper = {{"lower", "upper"}}});
  CHECK_THROWS_AS(levels.step(), std::invalid_argument);
}

}  // namespace
}  // namespace sotto::multilevel
