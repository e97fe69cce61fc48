// Hypergradients against closed forms, over two and three levels.
#include "multilevel/responses.h"

#include "tests/support/level_problems.h"

namespace sotto::multilevel {
namespace {

// Symmetric, with eigenvalues from 0.5 on.
Matrix random_hessian(std::uint64_t key, int size) {
  const Matrix m = random_matrix(key, size, size);
  return 0.1 * m * m.transpose() + 0.5 * Matrix::Identity(size, size);
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

const Differences both_orders[] = {{.order = Differences::Order::central},
                                   {.order = Differences::Order::fourth}};

TEST_CASE("responses of a quadratic problem are their closed forms") {
  TwoLevels levels;
  nn::Sgd optimizer = sgd(levels.w, 0.3);
  const Matrix &a = levels.lower.a, &bt = levels.lower.b.transpose();
  const Matrix one = Matrix::Identity(5, 5);
  for (const Differences& by : both_orders) {
    DYNAMIC_SECTION("finite differences: B' v, order " << static_cast<int>(by.order)) {
      const Vector got = levels.gradient(optimizer, finite_differences(by));
      check_close(got, bt * levels.upper.v(levels.w));
    }
    DYNAMIC_SECTION("Neumann: B' r sum_k (1 - r A)^k v, order " << static_cast<int>(by.order)) {
      const Vector got =
          levels.gradient(optimizer, neumann({.iterations = 4, .rate = 0.4, .differences = by}));
      const Vector v = levels.upper.v(levels.w);
      Vector term = v, total = v;
      for (int k = 0; k < 4; ++k) total += term = (one - 0.4 * a) * term;
      check_close(got, bt * (0.4 * total));
    }
    DYNAMIC_SECTION("cg, damped or not: B' (A + d)^-1 v, order " << static_cast<int>(by.order)) {
      for (const double damping : {0.0, 0.7}) {
        const Vector got = levels.gradient(
            optimizer,
            conjugate_gradients({.iterations = 5, .damping = damping, .differences = by}));
        const Vector v = levels.upper.v(levels.w);
        check_close(got, bt * (a + damping * one).ldlt().solve(v));
      }
    }
  }
}

const nn::AdamRule<false> rule{.learning_rate = 0.05, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3};

// The derivative of the last of several Adam steps by its gradient.
Vector adam_slope(const std::vector<Vector>& gradients) {
  Vector m = Vector::Zero(gradients[0].size()), s = m, m0 = m, s0 = m;
  for (const Vector& g : gradients) {
    m0 = m, s0 = s;
    m = 0.8 * m + 0.2 * g;
    s = 0.9 * s + 0.1 * g.cwiseAbs2();
  }
  const Vector roots = s.cwiseSqrt().array() + 1e-3;
  return 0.05 * (0.2 * 0.9 * s0.array() - 0.8 * 0.1 * gradients.back().array() * m0.array()) /
         roots.array().cube();
}

TEST_CASE("the derivative of an Adam step is that of its formula") {
  TwoLevels levels;
  nn::Adam optimizer(std::vector<nn::Adam::Group>{{{&levels.w}, rule}});
  const Vector got = levels.gradient(optimizer, adam_derivative(rule), 4);
  TwoLevels again;
  nn::Adam same(std::vector<nn::Adam::Group>{{{&again.w}, rule}});
  std::vector<Vector> gradients;
  for (int k = 0; k < 4; ++k) {
    gradients.push_back(again.lower.a * vector(again.w.value) -
                        again.lower.b * vector(again.u.value) - again.lower.c);
    same.step({{&again.w, tensor(gradients.back())}});
  }
  const Vector d = adam_slope(gradients);
  check_close(got, levels.lower.b.transpose() * d.cwiseProduct(levels.upper.v(levels.w)));
}

// lowest z of u, middle w of z, top: R(z, u) R(w, z) v.
struct ThreeLevels {
  Quadratic first{31, 3, 2}, second{41, 4, 3};
  Target target{51, 4};
  Parameter z{tensor(random_matrix(61, 3, 1))}, w{tensor(random_matrix(62, 4, 1))},
      u{tensor(random_matrix(63, 2, 1))};
  std::vector<Vector> lowest_gradients;

  Problem problem(const char* name, Parameter& own, nn::Optimizer& step, const Loss& loss) {
    return {.name = name,
            .variables = nn::NamedParameters{{"x", &own}},
            .optimizer = step,
            .loss = loss,
            .batches = one_row};
  }
  // The top's first gradient without its direct part.
  Vector gradient(const Response& lowest, const Response& middle, nn::Optimizer& z_step) {
    nn::Sgd w_step = sgd(w, 0.3), u_step = sgd(u, 0.1);
    Vector got;
    std::vector<Problem> all{problem("top", u, u_step, target.loss(w, u)),
                             problem("middle", w, w_step, second.loss(w, z)),
                             problem("lowest", z, z_step, first.loss(z, u))};
    const Vector before = vector(u.value);
    all[0].before_update = [&](Gradients& g) { got = vector(g[0].second) - before; };
    all[1].response = middle;
    all[1].unroll_steps = 2;
    all[2].response = lowest;
    all[2].unroll_steps = 3;
    all[2].before_update = [this](Gradients& g) {
      lowest_gradients.push_back(vector(g[0].second));
    };
    Levels levels(all, {.upper_to_lower = {{"top", "lowest"}},
                        .lower_to_upper = {{"lowest", "middle"}, {"middle", "top"}}});
    levels.run(6);
    return got;
  }
  Vector gradient(const Response& lowest, const Response& middle) {
    nn::Sgd z_step = sgd(z, 0.3);
    return gradient(lowest, middle, z_step);
  }
};

TEST_CASE("responses chain over three levels") {
  for (const Differences& by : both_orders) {
    ThreeLevels step, cg, series;
    const Matrix &a1 = cg.first.a, &a2 = cg.second.a;
    const Matrix b1 = cg.first.b.transpose(), b2 = cg.second.b.transpose();
    const Vector one_step = step.gradient(finite_differences(by), finite_differences(by));
    check_close(one_step, b1 * (b2 * step.target.v(step.w)));
    const Vector solved = cg.gradient(conjugate_gradients({.iterations = 3, .differences = by}),
                                      conjugate_gradients({.iterations = 4, .differences = by}));
    check_close(solved, b1 * a1.ldlt().solve(b2 * a2.ldlt().solve(cg.target.v(cg.w))));
    const Vector summed =
        series.gradient(neumann({.iterations = 1, .rate = 0.5, .differences = by}),
                        neumann({.iterations = 2, .rate = 0.3, .differences = by}));
    const Vector v = series.target.v(series.w);
    const Matrix one = Matrix::Identity(4, 4), m = one - 0.3 * a2;
    const Vector below = b2 * (0.3 * (v + m * v + m * (m * v)));
    check_close(summed, b1 * (0.5 * (2 * below - 0.5 * a1 * below)));
  }
}

TEST_CASE("the derivative of an Adam step chains over three levels") {
  ThreeLevels levels;
  nn::Adam z_step(std::vector<nn::Adam::Group>{{{&levels.z}, rule}});
  const Vector got = levels.gradient(adam_derivative(rule), finite_differences(), z_step);
  const Vector below = levels.second.b.transpose() * levels.target.v(levels.w);
  REQUIRE(levels.lowest_gradients.size() == 6);
  const Vector d = adam_slope(levels.lowest_gradients);
  check_close(got, levels.first.b.transpose() * d.cwiseProduct(below));
}

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
