// Hypergradients against closed forms, and against differences of whole unrolled runs.
#include "multilevel/responses.h"

#include <Eigen/Dense>

#include <cmath>

#include "autograd/ops.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "multilevel/levels.h"
#include "tests/support/catch.h"

namespace sotto::multilevel {
namespace {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

constexpr double relative = 1e-9;

Matrix random_matrix(std::uint64_t key, int rows, int columns) {
  Matrix m(rows, columns);
  for (int i = 0; i < rows * columns; ++i)
    m.data()[i] = normal(PhiloxKey{key, 7}, static_cast<std::uint64_t>(i));
  return m;
}

// Symmetric, with eigenvalues from 0.5 on.
Matrix random_hessian(std::uint64_t key, int size) {
  const Matrix m = random_matrix(key, size, size);
  return 0.1 * m * m.transpose() + 0.5 * Matrix::Identity(size, size);
}

Tensor tensor(const Matrix& m) {
  const Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> rows = m;
  const std::vector<double> values(rows.data(), rows.data() + rows.size());
  const Tensor y = Tensor::from(values, {m.rows(), m.cols()});
  return m.cols() == 1 ? y.squeeze(1) : y;
}

Vector vector(const Tensor& x) {
  const std::vector<double> values = x.to_vector<double>();
  return Eigen::Map<const Vector>(values.data(), std::ssize(values));
}

// w' A w / 2 - w' (B u + c) for the w and u of two problems.
struct Quadratic {
  Matrix a, b;
  Vector c;
  Quadratic(std::uint64_t key, int size, int settings)
      : a(random_hessian(key, size)),
        b(random_matrix(key + 1, size, settings)),
        c(random_matrix(key + 2, size, 1)) {}

  Loss loss(Parameter& w, Parameter& u) const {
    return [this, &w, &u](Pass& pass) {
      const auto known = [&](const Matrix& m) { return pass.tape.constant(tensor(m)); };
      const Var value = pass.tape.use(w);
      const Var bend = affine(matmul(known(a), value), 0.5, 0);
      const Var pull = matmul(known(b), pass.tape.use(u)) + known(c);
      return reshape(sum(value * (bend - pull)), {1});
    };
  }
};

// |P w - y|^2 / 2 + |u|^2 / 2
struct Target {
  Matrix p;
  Vector y;
  Target(std::uint64_t key, int size)
      : p(random_matrix(key, 4, size)), y(random_matrix(key + 1, 4, 1)) {}

  Loss loss(Parameter& w, Parameter& u) const {
    return [this, &w, &u](Pass& pass) {
      const Var off =
          matmul(pass.tape.constant(tensor(p)), pass.tape.use(w)) - pass.tape.constant(tensor(y));
      const Var all = sum(square(off)) + sum(square(pass.tape.use(u)));
      return reshape(affine(all, 0.5, 0), {1});
    };
  }
  Vector v(const Parameter& w) const { return p.transpose() * (p * vector(w.value) - y); }
};

std::vector<std::int64_t> one_row(std::int64_t) { return {0}; }

std::vector<nn::Sgd::Group> sgd_group(Parameter& parameter, double rate) {
  return {{{&parameter}, {.learning_rate = rate}}};
}
nn::Sgd sgd(Parameter& parameter, double rate) { return nn::Sgd(sgd_group(parameter, rate)); }

// The gradient of the upper problem's first update after `steps` lower ones, and the lower
// solution that it was taken at.
struct TwoLevels {
  Quadratic lower{1, 5, 3};
  Target upper{11, 5};
  Parameter w{tensor(random_matrix(21, 5, 1))}, u{tensor(random_matrix(22, 3, 1))};

  template <class Lower>
  Vector gradient(Lower& optimizer, const Response& response, std::int64_t steps = 3) {
    nn::Sgd upper_optimizer = sgd(u, 0.1);
    Vector got;
    const auto keep = [&](Gradients& gradients) { got = vector(gradients[0].second); };
    Levels levels({{.name = "lower",
                    .variables = nn::NamedParameters{{"w", &w}},
                    .optimizer = optimizer,
                    .loss = lower.loss(w, u),
                    .batches = one_row,
                    .response = response,
                    .unroll_steps = steps},
                   {.name = "upper",
                    .variables = nn::NamedParameters{{"u", &u}},
                    .optimizer = upper_optimizer,
                    .loss = upper.loss(w, u),
                    .batches = one_row,
                    .before_update = keep}},
                  {.upper_to_lower = {{"upper", "lower"}}, .lower_to_upper = {{"lower", "upper"}}});
    const Vector before = vector(u.value);
    levels.run(steps);
    return got - before;  // without the direct part, u
  }
};

void check_close(const Vector& got, const Vector& expected) {
  INFO("got " << got.transpose() << "\nexpected " << expected.transpose());
  REQUIRE(got.size() == expected.size());
  CHECK((got - expected).norm() <= relative * expected.norm());
}

TEST_CASE("responses of a quadratic problem are their closed forms") {
  TwoLevels levels;
  nn::Sgd optimizer = sgd(levels.w, 0.3);
  const Matrix &a = levels.lower.a, &bt = levels.lower.b.transpose();
  const Matrix one = Matrix::Identity(5, 5);
  SECTION("finite differences, central and of fourth order: B' v") {
    for (const auto order : {Differences::Order::central, Differences::Order::fourth}) {
      const Vector got = levels.gradient(optimizer, finite_differences({.order = order}));
      check_close(got, bt * levels.upper.v(levels.w));
    }
  }
  SECTION("a Neumann series: B' r sum_k (1 - r A)^k v") {
    const Vector got = levels.gradient(optimizer, neumann({.iterations = 4, .rate = 0.4}));
    const Vector v = levels.upper.v(levels.w);
    Vector term = v, total = v;
    for (int k = 0; k < 4; ++k) total += term = (one - 0.4 * a) * term;
    check_close(got, bt * (0.4 * total));
  }
  SECTION("conjugate gradients, with damping or without: B' (A + d)^-1 v") {
    for (const double damping : {0.0, 0.7}) {
      const Vector got =
          levels.gradient(optimizer, conjugate_gradients({.iterations = 5, .damping = damping}));
      const Vector v = levels.upper.v(levels.w);
      check_close(got, bt * (a + damping * one).ldlt().solve(v));
    }
  }
}

TEST_CASE("the derivative of an Adam step is that of its formula") {
  TwoLevels levels;
  const nn::AdamRule<false> rule{.learning_rate = 0.05, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3};
  nn::Adam optimizer(std::vector<nn::Adam::Group>{{{&levels.w}, rule}});
  const Vector got = levels.gradient(optimizer, adam_derivative(rule), 4);
  TwoLevels again;
  nn::Adam same(std::vector<nn::Adam::Group>{{{&again.w}, rule}});
  // m and s before and after the fourth step, and its gradient.
  Vector m = Vector::Zero(5), s = m, m0 = m, s0 = m, g = m;
  for (int k = 0; k < 4; ++k) {
    g = again.lower.a * vector(again.w.value) - again.lower.b * vector(again.u.value) -
        again.lower.c;
    m0 = m, s0 = s;
    m = 0.8 * m + 0.2 * g;
    s = 0.9 * s + 0.1 * g.cwiseAbs2();
    same.step({{&again.w, tensor(g)}});
  }
  const Vector roots = s.cwiseSqrt().array() + 1e-3;
  const Vector d =
      0.05 * (0.2 * 0.9 * s0.array() - 0.8 * 0.1 * g.array() * m0.array()) / roots.array().cube();
  check_close(got, levels.lower.b.transpose() * d.cwiseProduct(levels.upper.v(levels.w)));
}

// lowest z of u, middle w of z, top: R(z, u) R(w, z) v.
Vector three_levels(const Response& lowest, const Response& middle, Vector& v, Parameter& z,
                    Parameter& w, Parameter& u, const Quadratic& first, const Quadratic& second,
                    const Target& target) {
  nn::Sgd z_step = sgd(z, 0.3), w_step = sgd(w, 0.3), u_step = sgd(u, 0.1);
  Vector got;
  const Vector before = vector(u.value);
  Levels levels({{.name = "top",
                  .variables = nn::NamedParameters{{"u", &u}},
                  .optimizer = u_step,
                  .loss = target.loss(w, u),
                  .batches = one_row,
                  .before_update = [&](Gradients& all) { got = vector(all[0].second) - before; }},
                 {.name = "middle",
                  .variables = nn::NamedParameters{{"w", &w}},
                  .optimizer = w_step,
                  .loss = second.loss(w, z),
                  .batches = one_row,
                  .response = middle,
                  .unroll_steps = 2},
                 {.name = "lowest",
                  .variables = nn::NamedParameters{{"z", &z}},
                  .optimizer = z_step,
                  .loss = first.loss(z, u),
                  .batches = one_row,
                  .response = lowest,
                  .unroll_steps = 3}},
                {.upper_to_lower = {{"top", "lowest"}},
                 .lower_to_upper = {{"lowest", "middle"}, {"middle", "top"}}});
  levels.run(6);
  v = target.v(w);
  return got;
}

TEST_CASE("responses chain over three levels") {
  const Quadratic first(31, 3, 2), second(41, 4, 3);
  const Target target(51, 4);
  Parameter z(tensor(random_matrix(61, 3, 1))), w(tensor(random_matrix(62, 4, 1))),
      u(tensor(random_matrix(63, 2, 1)));
  Vector v;
  const auto run = [&](const Response& lowest, const Response& middle) {
    return three_levels(lowest, middle, v, z, w, u, first, second, target);
  };
  const Matrix b1 = first.b.transpose(), b2 = second.b.transpose();
  const Vector one_step = run(finite_differences(), finite_differences());
  check_close(one_step, b1 * (b2 * v));
  const Vector solved =
      run(conjugate_gradients({.iterations = 3}), conjugate_gradients({.iterations = 4}));
  check_close(solved, b1 * first.a.ldlt().solve(b2 * second.a.ldlt().solve(v)));
  const Vector series = run(neumann({.iterations = 0, .rate = 0.5}), finite_differences());
  check_close(series, b1 * (0.5 * (b2 * v)));
}

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

// w' A w / 2 - w' (B u + c) with one gradient step of rate r and w' A w ~ 0: the response of one
// step, -r B' v, is the derivative of the whole run.
TEST_CASE("the response of one step, times the rate, is the derivative of a whole run") {
  constexpr double rate = 0.3, step = 0.1;
  TwoLevels levels;
  nn::Sgd optimizer = sgd(levels.w, rate);
  const Vector got = levels.gradient(optimizer, finite_differences(), 1);
  const auto loss_at = [&](int element, double by) {
    const TwoLevels start;
    Vector u = vector(start.u.value);
    u[element] += by;
    const Vector w = vector(start.w.value);
    const Vector next = w - rate * (start.lower.a * w - start.lower.b * u - start.lower.c);
    return 0.5 * (start.upper.p * next - start.upper.y).squaredNorm();
  };
  Vector exact(3);
  for (int k = 0; k < 3; ++k) exact[k] = (loss_at(k, step) - loss_at(k, -step)) / (2 * step);
  check_close(rate * got, exact);
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

TEST_CASE("options of responses out of range are refused") {
  CHECK_THROWS_AS(finite_differences({.step = 0}), std::invalid_argument);
  CHECK_THROWS_AS(neumann({.iterations = -1}), std::invalid_argument);
  CHECK_THROWS_AS(neumann({.rate = 0}), std::invalid_argument);
  CHECK_THROWS_AS(conjugate_gradients({.iterations = 0}), std::invalid_argument);
  CHECK_THROWS_AS(conjugate_gradients({.damping = -1}), std::invalid_argument);
  CHECK_THROWS_AS(adam_derivative({.weight_decay = 0.1}), std::invalid_argument);
  CHECK_THROWS_AS(adam_derivative({.beta1 = 0}), std::invalid_argument);
}

}  // namespace
}  // namespace sotto::multilevel
