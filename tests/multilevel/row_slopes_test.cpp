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

// -(1 / n) sum_i <g_i, v> d(weight_i)/du at w.
Vector slopes_at(const Reweighting& at, const Vector& w, const Vector& v) {
  const Vector start = random_matrix(74, 2, 1);
  Vector expected = Vector::Zero(2);
  for (std::int64_t i = 0; i < Reweighting::rows; ++i) {
    const double off = vector(at.x[i]).dot(w) - at.y[i].item();
    const double product = 2 * off * vector(at.x[i]).dot(v);
    const double weight = 1 / (1 + std::exp(-start[0] - start[1] * off * off));
    expected -= product * weight * (1 - weight) / Reweighting::rows * Vector{{1, off * off}};
  }
  return expected;
}

TEST_CASE("row slopes, and differences that hold detached values, are the exact derivative") {
  constexpr double rate = 0.1;
  const Vector slopes = Reweighting().gradient(row_slopes(), rate, false);
  Reweighting at;
  at.gradient(row_slopes(), rate, false);
  const Vector expected = slopes_at(at, vector(at.w.value), at.target.v(at.w));
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
      // A difference divides rounding by its step.
      CHECK((parts - whole).norm() <= (in_loss ? 1e-9 : 1e-12) * whole.norm());
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

// The derivative of that loss by u over the rate, of fourth order.
Vector whole_run(double rate) {
  constexpr double step = 1e-3;
  Vector exact(2);
  for (int k = 0; k < 2; ++k) {
    exact[k] = (8 * (loss_after_step(k, step, rate) - loss_after_step(k, -step, rate)) -
                (loss_after_step(k, 2 * step, rate) - loss_after_step(k, -2 * step, rate))) /
               (12 * step * rate);
  }
  return exact;
}

TEST_CASE("row slopes of the step are its derivative at any rate") {
  const Response of_step = row_slopes({.of_step = true});
  for (const double rate : {0.3, 0.01}) {
    const Vector got = Reweighting().gradient(of_step, rate, false);
    Reweighting at;
    at.gradient(of_step, rate, false);
    check_close(got, slopes_at(at, random_matrix(73, Reweighting::inputs, 1), at.target.v(at.w)));
    CHECK((got - whole_run(rate)).norm() < 1e-7 * got.norm());
    for (const std::int64_t rows : {1, 3}) {
      const Vector parts = Reweighting().gradient(of_step, rate, false, {.physical_batch = rows});
      CHECK((parts - got).norm() <= 1e-12 * got.norm());
    }
  }
}

TEST_CASE("row slopes of the step make the updates that other responses make below") {
  std::vector<double> values[2];
  for (const bool of_step : {false, true}) {
    Reweighting run;
    run.gradient(row_slopes({.of_step = of_step}), 0.1, false);
    values[of_step] = run.w.value.to_vector<double>();
  }
  for (std::size_t k = 0; k < values[0].size(); ++k)
    CHECK(values[1][k] == Approx(values[0][k]).epsilon(1e-13));
}

TEST_CASE("row slopes chain over three levels") {
  for (const bool of_step : {false, true}) {
    Reweighting run;
    Parameter m(tensor(random_matrix(81, 4, 1)));
    const Matrix pull = random_matrix(82, 4, Reweighting::inputs);
    const Target top(83, 4);
    nn::Sgd m_step = sgd(m, 0.3);
    std::vector<Problem> all = run.problems(row_slopes({.of_step = of_step}), 0.1, false);
    all[1].loss = top.loss(m, run.u);
    all.push_back({.name = "middle",
                   .variables = nn::NamedParameters{{"m", &m}},
                   .optimizer = m_step,
                   .loss =
                       [&](Pass& pass) {
                         const Var goal =
                             matmul(pass.tape.constant(tensor(pull)), pass.tape.use(run.w));
                         return reshape(sum(square(pass.tape.use(m) - goal)), {1});
                       },
                   .batches = one_row,
                   .response = finite_differences()});
    Levels levels(all, {.upper_to_lower = {{"upper", "lower"}},
                        .lower_to_upper = {{"lower", "middle"}, {"middle", "upper"}}});
    levels.step();
    const Vector v = 2 * pull.transpose() * top.v(m);
    const Vector w =
        of_step ? Vector(random_matrix(73, Reweighting::inputs, 1)) : vector(run.w.value);
    check_close(run.upper_gradient, slopes_at(run, w, v));
  }
}

TEST_CASE("row slopes are the derivative of a whole run as the rate goes to zero") {
  // At the rate itself the weights' gradient is taken at the new parameters, not the old ones.
  double before = 0;
  for (const double rate : {1e-2, 1e-3}) {
    const Vector exact = whole_run(rate);
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
  problems[0].response = row_slopes({.of_step = true});
  Levels kept(problems,
              {.upper_to_lower = {{"upper", "lower"}}, .lower_to_upper = {{"lower", "upper"}}});
  CHECK_THROWS_AS(kept.step(), std::invalid_argument);
}

}  // namespace
}  // namespace sotto::multilevel
