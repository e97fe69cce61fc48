// Conjugate gradients on the empirical Fisher matrix against closed forms.
#include "autograd/ops/elementwise.h"
#include "multilevel/responses.h"
#include "tests/support/level_problems.h"

namespace sotto::multilevel {
namespace {

// (x_i w - z_i s - y_i)^2 / 2 for the rows i, the w of one problem and the s of another.
struct LeastSquares {
  Matrix x, z;
  Vector y;
  LeastSquares(std::uint64_t key, int rows, int size, int settings)
      : x(random_matrix(key, rows, size)),
        z(random_matrix(key + 1, rows, settings)),
        y(random_matrix(key + 2, rows, 1)) {}

  Loss loss(Parameter& w, Parameter& s) const {
    return [this, &w, &s](Pass& pass) {
      const auto rows = [&](const Matrix& m) {
        const Tensor ids =
            Tensor::from(std::vector(pass.rows.begin(), pass.rows.end()), {std::ssize(pass.rows)});
        return pass.tape.input(gather(tensor(m), ids, 0));
      };
      const Var off =
          matmul(rows(x), pass.tape.use(w)) - matmul(rows(z), pass.tape.use(s)) - rows(y);
      return affine(square(off), 0.5, 0);
    };
  }
  Batches batches() const {
    return [n = x.rows()](std::int64_t) {
      std::vector<std::int64_t> rows;
      for (std::int64_t k = 0; k < n; ++k) rows.push_back(k);
      return rows;
    };
  }
  // -d2L/ds dw (F + damping)^-1 v
  Vector response(const Parameter& w, const Parameter& s, const Vector& v, double damping) const {
    const auto n = static_cast<double>(x.rows());
    const Vector off = x * vector(w.value) - z * vector(s.value) - y;
    Matrix fisher = damping * Matrix::Identity(x.cols(), x.cols());
    fisher += x.transpose() * off.cwiseAbs2().asDiagonal() * x / n;
    return z.transpose() * x * fisher.ldlt().solve(v) / n;
  }
};

ConjugateGradients fisher(double damping, int iterations) {
  return {.iterations = iterations,
          .damping = damping,
          .matrix = ConjugateGradients::Matrix::empirical_fisher};
}

// top u, middle w of z, lowest z of u; without the lowest, w is of u.
struct Chain {
  LeastSquares middle{31, 9, 4, 3}, lowest{41, 8, 3, 2};
  Target target{51, 4};
  Parameter z{tensor(random_matrix(61, 3, 1))}, w{tensor(random_matrix(62, 4, 1))},
      u2{tensor(random_matrix(63, 2, 1))}, u3{tensor(random_matrix(64, 3, 1))};
  nn::Sgd z_step = sgd(z, 0.1), w_step = sgd(w, 0.1), u2_step = sgd(u2, 0.1),
          u3_step = sgd(u3, 0.1);
  Vector got;

  Problem top(Parameter& u, nn::Optimizer& step) {
    const Vector before = vector(u.value);
    return {.name = "top",
            .variables = nn::NamedParameters{{"u", &u}},
            .optimizer = step,
            .loss = target.loss(w, u),
            .batches = one_row,
            .before_update = [this, before](Gradients& all) {
              got = vector(all[0].second) - before;  // without the direct part
            }};
  }
  static Problem below(const char* name, const LeastSquares& rows, Parameter& own, Parameter& other,
                       nn::Optimizer& step, const Response& response,
                       const memory::Policy& policy) {
    return {.name = name,
            .variables = nn::NamedParameters{{"x", &own}},
            .optimizer = step,
            .loss = rows.loss(own, other),
            .batches = rows.batches(),
            .response = response,
            .unroll_steps = 2,
            .policy = policy};
  }
  Vector two_levels(const Response& response, const memory::Policy& policy = {}) {
    Levels levels({top(u3, u3_step), below("middle", middle, w, u3, w_step, response, policy)},
                  {.upper_to_lower = {{"top", "middle"}}, .lower_to_upper = {{"middle", "top"}}});
    levels.run(2);
    return got;
  }
  Vector three_levels(const Response& response) {
    Levels levels({top(u2, u2_step), below("middle", middle, w, z, w_step, response, {}),
                   below("lowest", lowest, z, u2, z_step, response, {})},
                  {.upper_to_lower = {{"top", "lowest"}},
                   .lower_to_upper = {{"lowest", "middle"}, {"middle", "top"}}});
    levels.run(4);
    return got;
  }
};

TEST_CASE("conjugate gradients on the empirical Fisher matrix are its closed form") {
  for (const double damping : {0.1, 3.0}) {
    Chain chain;
    const Vector u = vector(chain.u3.value);
    const Vector two = chain.two_levels(conjugate_gradients(fisher(damping, 4)));
    copy_into(tensor(u), chain.u3.value);  // as it was when the gradient was taken
    const Vector v = chain.target.v(chain.w);
    check_close(two, chain.middle.response(chain.w, chain.u3, v, damping));
  }
}

TEST_CASE("the empirical Fisher matrix chains over three levels") {
  Chain chain;
  const Vector u = vector(chain.u2.value);
  const Vector three = chain.three_levels(conjugate_gradients(fisher(0.5, 4)));
  copy_into(tensor(u), chain.u2.value);
  const Vector v = chain.middle.response(chain.w, chain.z, chain.target.v(chain.w), 0.5);
  check_close(three, chain.lowest.response(chain.z, chain.u2, v, 0.5));
}

TEST_CASE("physical batches change no product with the empirical Fisher matrix") {
  const Vector whole = Chain().two_levels(conjugate_gradients(fisher(0.5, 4)));
  for (const std::int64_t rows : {1, 2, 4}) {
    const Vector parts =
        Chain().two_levels(conjugate_gradients(fisher(0.5, 4)), {.physical_batch = rows});
    check_close(parts, whole);
  }
}

TEST_CASE("an empirical Fisher matrix wants damping, and losses of rows") {
  CHECK_THROWS_AS(conjugate_gradients(fisher(0, 4)), std::invalid_argument);
  Chain chain;
  Problem problem = Chain::below("middle", chain.middle, chain.w, chain.u3, chain.w_step,
                                 conjugate_gradients(fisher(0.5, 4)), {});
  problem.loss = [loss = problem.loss](Pass& pass) { return reshape(sum(loss(pass)), {1}); };
  problem.batches = one_row;
  Levels levels({chain.top(chain.u3, chain.u3_step), problem},
                {.upper_to_lower = {{"top", "middle"}}, .lower_to_upper = {{"middle", "top"}}});
  levels.step();
  CHECK_THROWS_AS(levels.step(), std::invalid_argument);
}

}  // namespace
}  // namespace sotto::multilevel
