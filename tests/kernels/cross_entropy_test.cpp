// Cross entropy of rows against a loop in double, on every engine.
// File tags: [gpu]
#include <array>
#include <limits>

#include "kernels/host_device/class_targets.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

constexpr std::int64_t ignored = -7;
constexpr double infinity = std::numeric_limits<double>::infinity();

struct Case {
  Tensor x, ids, weights, dy;
  double smoothing;
  double z_loss = 0;

  ClassTargets targets() const {
    return {ids.view(), weights.defined() ? weights.view() : View{}, smoothing, ignored, z_loss};
  }
  std::int64_t rows() const { return x.size(0); }
  std::int64_t classes() const { return x.size(1); }
  Dtype wide() const { return arithmetic_type(x.dtype()); }
};

// Rows of logits may have gaps.
Case random_case(Random& random, Dtype dtype, std::int64_t classes, std::int64_t gap) {
  const std::int64_t rows = between(random, 1, 5);
  Case c{.x = random_tensor(random, {rows, classes + gap}, {0, 1}, dtype).slice(1, 0, classes),
         .dy = random_tensor(random, {rows}, arithmetic_type(dtype)),
         .smoothing = random() % 2 == 0 ? 0 : 0.2,
         .z_loss = random() % 2 == 0 ? 0 : 0.3};
  std::vector<std::int64_t> ids;
  for (std::int64_t row = 0; row < rows; ++row)
    ids.push_back(random() % 4 == 0 ? ignored : between(random, 0, classes - 1));
  c.ids = Tensor::from(ids, {rows});
  if (random() % 2 == 0) {
    c.weights = random_tensor(random, {classes}, c.wide());
    set_value(c.weights, between(random, 0, classes - 1), 0);
  }
  return c;
}

struct Expected {
  std::vector<double> losses, grads;
};

// By the formulas of class_targets.h.
Expected expected(const Case& c) {
  const std::vector<double> x = values(c.x), dy = values(c.dy),
                            w = c.weights.defined()
                                    ? values(c.weights)
                                    : std::vector<double>(static_cast<std::size_t>(c.classes()),
                                                          1.0);
  const std::vector<std::int64_t> ids = c.ids.to_vector<std::int64_t>();
  Expected y{std::vector<double>(ids.size()), std::vector<double>(x.size())};
  for (std::size_t row = 0; row < ids.size(); ++row) {
    if (ids[row] == ignored) continue;
    const double* const a = x.data() + row * w.size();
    double sum = 0;
    for (std::size_t k = 0; k < w.size(); ++k) sum += std::exp(a[k]);
    y.losses[row] = c.z_loss * std::log(sum) * std::log(sum);
    double total = 2 * c.z_loss * std::log(sum);
    std::vector<double> q(w.size());
    for (std::size_t k = 0; k < w.size(); ++k) {
      const bool own = static_cast<std::int64_t>(k) == ids[row];
      q[k] = w[k] * (c.smoothing / static_cast<double>(w.size()) + (own ? 1 - c.smoothing : 0));
      total += q[k];
      if (q[k] != 0) y.losses[row] -= q[k] * (a[k] - std::log(sum));
    }
    for (std::size_t k = 0; k < w.size(); ++k)
      y.grads[row * w.size() + k] = dy[row] * (std::exp(a[k]) / sum * total - q[k]);
  }
  return y;
}

void check_case(const Case& c) {
  const Expected known = expected(c);
  const std::int64_t pitch = c.x.strides()[0];
  const Tensor losses = unwritten({c.rows()}, c.wide()),
               whole = unwritten({c.rows(), pitch}, c.x.dtype()),
               grads = whole.slice(1, 0, c.classes()), stats = unwritten({c.rows(), 3}, c.wide());
  backend(cpu).cross_entropy(c.targets(), c.x.view(), losses.view(), stats.view());
  check_close(losses, known.losses);
  backend(cpu).cross_entropy_grad(c.targets(), c.x.view(), stats.view(), c.dy.view(), grads.view());
  check_close(grads, known.grads);
  for (const double gap : values(whole.slice(1, c.classes(), pitch))) CHECK(std::isnan(gap));
}

}  // namespace

TEST_CASE("the cross entropy of rows and its gradient are their formulas") {
  Random random(71);
  const auto check_all = [&] {
    for (int round = 0; round < 40; ++round) {
      const Dtype dtype = float_dtypes[round % 4];
      // Wide rows are aligned, or begin anywhere in a pack.
      const std::int64_t classes = round < 30 ? between(random, 1, 20) : 96 + round % 3,
                         gap = std::array<std::int64_t, 3>{0, 1, 32}[random() % 3];
      check_case(random_case(random, dtype, classes, gap));
    }
  };
  check_all();
  for_each_device_code(check_all);
}

TEST_CASE("large logits and classes without weight leave a finite cross entropy") {
  const auto check_rows = [] {
    Case c{.x = Tensor::from(std::vector<double>{1e30, 0, -infinity, 5e4, 5e4, -infinity}, {2, 3}),
           .ids = Tensor::from(std::vector<std::int64_t>{0, 1}, {2}),
           .weights = Tensor::from(std::vector<double>{1, 1, 0}, {3}),
           .dy = Tensor::from(std::vector<double>{1, 1}, {2}),
           .smoothing = 0};
    const Tensor losses = unwritten({2}, Dtype::f64), stats = unwritten({2, 3}, Dtype::f64),
                 grads = unwritten({2, 3}, Dtype::f64);
    backend(cpu).cross_entropy(c.targets(), c.x.view(), losses.view(), stats.view());
    backend(cpu).cross_entropy_grad(c.targets(), c.x.view(), stats.view(), c.dy.view(),
                                    grads.view());
    check_close(losses, {0, std::log(2)});
    check_close(grads, {0, 0, 0, 0.5, -0.5, 0});
  };
  check_rows();
  for_each_device_code(check_rows);
}

TEST_CASE("an id that is no class makes its row NaN, and an ignored row may hold anything") {
  const auto check_rows = [] {
    for (const std::int64_t wrong : {std::int64_t{3}, std::int64_t{-1}}) {
      Case c{.x = Tensor::from(std::vector<float>{1, 2, 3, std::nanf(""), 1, 2}, {2, 3}),
             .ids = Tensor::from(std::vector<std::int64_t>{wrong, ignored}, {2}),
             .dy = full({1}, 1).expand({2}),
             .smoothing = 0.1};
      const Tensor losses = unwritten({2}, Dtype::f32), stats = unwritten({2, 3}, Dtype::f32),
                   grads = zeros({2, 3});
      backend(cpu).cross_entropy(c.targets(), c.x.view(), losses.view(), stats.view());
      backend(cpu).cross_entropy_grad(c.targets(), c.x.view(), stats.view(), c.dy.view(),
                                      grads.view());
      const std::vector<double> loss = values(losses), grad = values(grads);
      CHECK(std::isnan(loss[0]));
      CHECK(loss[1] == 0);
      for (std::size_t k = 0; k < 6; ++k) CHECK((k < 3 ? std::isnan(grad[k]) : grad[k] == 0));
    }
  };
  check_rows();
  for_each_device_code(check_rows);
}
