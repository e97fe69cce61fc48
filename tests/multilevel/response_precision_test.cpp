// Responses of models in f32 and 16 bits: their passes are in f64.
#include "multilevel/responses.h"

#include "autograd/ops.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "multilevel/levels.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

namespace sotto::multilevel {
namespace {

std::vector<double> doubles(const Tensor& x) {
  return to_dtype(contiguous(x), Dtype::f64).to_vector<double>();
}

// Values that f32 and f64 both hold.
Tensor values(std::uint64_t key, const Shape& shape, Dtype dtype) {
  PublicRandom random(key);
  std::vector<double> all(static_cast<std::size_t>(shape.numel()));
  for (double& value : all) value = random.normal();
  return to_dtype(to_dtype(Tensor::from(all, shape), Dtype::f32), dtype);
}

std::vector<std::int64_t> all_rows(std::int64_t) { return {0, 1, 2, 3, 4, 5}; }

// A network of one hidden layer whose losses and decay have weights of the problem above.
struct Network {
  Dtype dtype;
  Parameter first{values(1, {5, 4}, dtype)}, second{values(2, {3, 5}, dtype)},
      u{values(3, {6}, dtype)};
  nn::NamedParameters variables{{"first", &first}, {"second", &second}};

  Var losses(Pass& pass, std::uint64_t key) {
    Tape& tape = pass.tape;
    std::vector<std::int64_t> labels;
    for (const std::int64_t row : pass.rows) labels.push_back(row % 3);
    const Tensor all = values(key, {6, 4}, dtype);
    const Var x =
        tape.input(contiguous(all.slice(0, pass.first(), pass.first() + pass.rows.size())));
    const Var hidden = tanh(linear(x, tape.use(first)));
    return cross_entropy(linear(hidden, tape.use(second)),
                         Tensor::from(labels, {std::ssize(labels)}));
  }
  Var decay(Pass& pass) {
    return 0.5 * (sum(square(pass.tape.use(first))) + sum(square(pass.tape.use(second))));
  }
  // The first gradient of the upper problem.
  std::vector<double> gradient(nn::Optimizer& below, const Response& response,
                               const memory::Policy& policy = {}) {
    nn::Sgd above({{.parameters = {&u}, .rule = {.learning_rate = 0}}});
    const auto weighed = [&](Pass& pass) {
      const Var share = sigmoid(slice(pass.tape.use(u), 0, 0, 1));
      return losses(pass, 11) * share + decay(pass) * exp(slice(pass.tape.use(u), 0, 1, 2));
    };
    std::vector<double> got;
    const auto keep = [&](Gradients& all) { got = doubles(all[0].second); };
    Levels levels({{.name = "lower",
                    .variables = variables,
                    .optimizer = below,
                    .loss = weighed,
                    .batches = all_rows,
                    .response = response,
                    .unroll_steps = 4,
                    .policy = policy},
                   {.name = "upper",
                    .variables = nn::NamedParameters{{"u", &u}},
                    .optimizer = above,
                    .loss = [&](Pass& pass) { return losses(pass, 12); },
                    .batches = all_rows,
                    .before_update = keep}},
                  {.upper_to_lower = {{"upper", "lower"}}, .lower_to_upper = {{"lower", "upper"}}});
    levels.run(4);
    return got;
  }
  std::vector<double> gradient(const Response& response, const memory::Policy& policy = {}) {
    nn::Sgd below(std::vector<nn::Sgd::Group>{{variables_of(), {.learning_rate = 0.1}}});
    return gradient(below, response, policy);
  }
  std::vector<Parameter*> variables_of() { return {&first, &second}; }
};

double relative_error(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  double error = 0, size = 0;
  for (std::size_t k = 0; k < got.size(); ++k) {
    if (!(std::abs(got[k] - expected[k]) <= error)) error = std::abs(got[k] - expected[k]);
    size = std::max(size, std::abs(expected[k]));
  }
  return error / size;
}

const Response responses[] = {finite_differences(), neumann({.iterations = 3, .rate = 0.2}),
                              conjugate_gradients({.iterations = 4}),
                              conjugate_gradients({.iterations = 4, .damping = 0.1})};

TEST_CASE("responses of a model in f32 are those in f64 to f32's rounding") {
  constexpr double rounding = 1e-5;
  for (const Response& response : responses) {
    Network narrow{Dtype::f32}, wide{Dtype::f64};
    const std::vector<double> exact = wide.gradient(response);
    CHECK(relative_error(narrow.gradient(response), exact) < rounding);
    CHECK(narrow.first.value.dtype() == Dtype::f32);
    Network parts{Dtype::f32};
    CHECK(relative_error(parts.gradient(response, {.physical_batch = 4}), exact) < rounding);
  }
  const nn::AdamRule<false> rule{.learning_rate = 0.05, .eps = 1e-3};
  const auto with_adam = [&](Dtype dtype) {
    Network network{dtype};
    nn::Adam below(std::vector<nn::Adam::Group>{{network.variables_of(), rule}});
    return network.gradient(below, adam_derivative(rule));
  };
  CHECK(relative_error(with_adam(Dtype::f32), with_adam(Dtype::f64)) < 1e-4);
}

TEST_CASE("steps of 16 bits have responses in f64 at their parameters") {
  for (const Dtype precision : {Dtype::bf16, Dtype::f16}) {
    for (const Response& response : responses) {
      Network narrow{Dtype::f32}, wide{Dtype::f64};
      const std::vector<double> got = narrow.gradient(response, {.precision = precision});
      CHECK(relative_error(got, wide.gradient(response)) < 0.05);
    }
  }
}

// w' A w / 2 - u' w below, |w|^2 above, in one type: the response is 2 A^-1 w.
struct Quadratic {
  Parameter w, u;
  Tensor a;
  explicit Quadratic(const std::vector<double>& matrix, Dtype dtype, double scale = 1)
      : w(Tensor::from({0.3 * scale, 0.7 * scale, -0.2 * scale}, {3}, dtype)),
        u(Tensor::from({0, 0, 0}, {3}, dtype)),
        a(to_dtype(Tensor::from(matrix, {3, 3}), dtype)) {}

  std::vector<double> gradient(const Response& response) {
    nn::Sgd below({{.parameters = {&w}, .rule = {.learning_rate = 0}}}),
        above({{.parameters = {&u}, .rule = {.learning_rate = 0}}});
    const auto row = [](std::int64_t) { return std::vector<std::int64_t>{0}; };
    std::vector<double> got;
    Levels levels(
        {{.name = "lower",
          .variables = nn::NamedParameters{{"w", &w}},
          .optimizer = below,
          .loss =
              [&](Pass& pass) {
                const Var x = pass.tape.use(w);
                const Var bend = 0.5 * sum(x * matmul(pass.tape.constant(a), x), {0});
                return reshape(bend - sum(pass.tape.use(u) * x, {0}), {1});
              },
          .batches = row,
          .response = response},
         {.name = "upper",
          .variables = nn::NamedParameters{{"u", &u}},
          .optimizer = above,
          .loss = [&](Pass& pass) { return reshape(sum(square(pass.tape.use(w)), {0}), {1}); },
          .batches = row,
          .before_update = [&](Gradients& all) { got = doubles(all[0].second); }}},
        {.upper_to_lower = {{"upper", "lower"}}, .lower_to_upper = {{"lower", "upper"}}});
    levels.run(1);
    return got;
  }
};

// 2 A^-1 w for A [3, 3] by Cramer's rule.
std::vector<double> solution(const std::vector<double>& a, const std::vector<double>& w) {
  const auto determinant = [](const std::vector<double>& m) {
    return m[0] * (m[4] * m[8] - m[5] * m[7]) - m[1] * (m[3] * m[8] - m[5] * m[6]) +
           m[2] * (m[3] * m[7] - m[4] * m[6]);
  };
  std::vector<double> y;
  for (std::size_t column = 0; column < 3; ++column) {
    std::vector<double> m = a;
    for (std::size_t row = 0; row < 3; ++row) m[3 * row + column] = 2 * w[row];
    y.push_back(determinant(m) / determinant(a));
  }
  return y;
}

TEST_CASE("conjugate gradients with more steps than they need give the solution") {
  const std::vector<double> matrices[] = {{4, 1, 0.5, 1, 3, 0.25, 0.5, 0.25, 2},
                                          {1, 0, 0, 0, 1, 0, 0, 0, 1},
                                          {1e3, 0, 0, 0, 1, 0, 0, 0, 1},
                                          {4, 0, 0, 0, -3, 0, 0, 0, 2}};
  for (const std::vector<double>& matrix : matrices) {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
      for (const double scale : {1.0, 0x1p-60}) {
        for (const int iterations : {3, 10, 200}) {
          Quadratic q(matrix, dtype, scale);
          const std::vector<double> exact = solution(matrix, doubles(q.w.value));
          const std::vector<double> got =
              q.gradient(conjugate_gradients({.iterations = iterations}));
          CHECK(relative_error(got, exact) < (dtype == Dtype::f64 ? 1e-8 : 1e-6));
        }
      }
    }
  }
}

TEST_CASE("conjugate gradients of a singular Hessian end where only rounding is left") {
  for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
    for (const int iterations : {1, 2, 200}) {
      // Eigenvalues 3, 3 and 0, that of (1, -1, -1), which w has nothing of but rounding.
      Quadratic q({2, 1, 1, 1, 2, -1, 1, -1, 2}, dtype);
      q.w.value = Tensor::from({0.3, 0.7, -0.4}, {3}, dtype);
      const std::vector<double> got = q.gradient(conjugate_gradients({.iterations = iterations}));
      CHECK(relative_error(got, {0.2, 1.4 / 3, -0.8 / 3}) < (dtype == Dtype::f64 ? 1e-8 : 1e-6));
    }
    Quadratic outside({2, 1, 1, 1, 2, -1, 1, -1, 2}, dtype);
    CHECK(throws([&] { outside.gradient(conjugate_gradients({.iterations = 9})); },
                 "no curvature in direction"));
  }
}

TEST_CASE("a response to nothing is nothing, and a direction without curvature is refused") {
  for (const Response& response : responses) {
    Quadratic q({4, 1, 0.5, 1, 3, 0.25, 0.5, 0.25, 2}, Dtype::f32, 0);
    CHECK(q.gradient(response) == std::vector<double>(3));
  }
  Quadratic flat(std::vector<double>(9), Dtype::f32);
  CHECK(throws([&] { flat.gradient(conjugate_gradients()); }, "no curvature in direction 0"));
}

}  // namespace
}  // namespace sotto::multilevel
