// Losses that no conformance case covers, against loops over their formulas.
#include <cmath>

#include "autograd/ops.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

constexpr std::int64_t n = 4, d = 3;

std::vector<double> drawn(PublicRandom& random, std::size_t count, double low, double high) {
  std::vector<double> values(count);
  for (double& value : values) value = low + (high - low) * random.uniform();
  return values;
}

// A batch of n rows of d numbers, as doubles and on a tape.
struct Rows {
  std::vector<double> values;
  Var var;
  double at(std::int64_t row, std::int64_t i) const {
    return values[static_cast<std::size_t>(row * d + i)];
  }
};

Rows rows(Tape& tape, PublicRandom& random, double low, double high) {
  const std::vector<double> values = drawn(random, n * d, low, high);
  return {values, tape.input(Tensor::from(values, {n, d}))};
}

// Checks that `got` is the mean of f(x, t) over each row.
template <class F>
void check_mean(const Var& got, const Rows& x, const Rows& t, F&& f) {
  const std::vector<double> values = got.value().to_vector<double>();
  REQUIRE(values.size() == n);
  for (std::int64_t row = 0; row < n; ++row) {
    double sum = 0;
    for (std::int64_t i = 0; i < d; ++i) sum += f(x.at(row, i), t.at(row, i));
    CHECK(values[static_cast<std::size_t>(row)] == Approx(sum / d));
  }
}

}  // namespace

TEST_CASE("losses by element are their formulas, averaged within the sample") {
  PublicRandom random(21);
  Tape tape({.private_data = true});
  const Rows x = rows(tape, random, 0.1, 0.9), t = rows(tape, random, 0, 1),
             wide = rows(tape, random, -3, 3);
  check_mean(binary_cross_entropy(x.var, t.var), x, t,
             [](double p, double q) { return -(q * std::log(p) + (1 - q) * std::log(1 - p)); });
  check_mean(poisson_nll_loss(wide.var, t.var), wide, t,
             [](double p, double q) { return std::exp(p) - q * p; });
  check_mean(poisson_nll_loss(x.var, t.var, false), x, t,
             [](double p, double q) { return p - q * std::log(p + 1e-8); });
  check_mean(hinge_loss(wide.var, t.var, 0.5), wide, t,
             [](double p, double q) { return std::max(0.0, 0.5 - p * q); });
  check_mean(huber_loss(wide.var, t.var, 0.8), wide, t, [](double p, double q) {
    const double e = std::abs(p - q);
    return e <= 0.8 ? e * e / 2 : 0.8 * (e - 0.4);
  });
}

TEST_CASE("certain probabilities have a bounded cross entropy") {
  Tape tape;
  const Var x = tape.input(Tensor::from(std::vector<double>{0, 1, 0, 1}, {4, 1}));
  const Var t = tape.input(Tensor::from(std::vector<double>{0, 1, 1, 0}, {4, 1}));
  CHECK(binary_cross_entropy(x, t).value().to_vector<double>() ==
        std::vector<double>{0, 0, 100, 100});
}

TEST_CASE("cosine and triplet losses are those of their vectors") {
  PublicRandom random(22);
  Tape tape({.private_data = true});
  const Rows a = rows(tape, random, -1, 1), b = rows(tape, random, -1, 1),
             c = rows(tape, random, -1, 1);
  const Var sign = tape.input(Tensor::from(std::vector<double>{1, -1, 1, -1}, {n}));
  const std::vector<double> cosine =
      cosine_embedding_loss(a.var, b.var, sign, 0.1).value().to_vector<double>();
  const std::vector<double> triplet =
      triplet_margin_loss(a.var, b.var, c.var, 0.3).value().to_vector<double>();
  for (std::int64_t row = 0; row < n; ++row) {
    double ab = 0, aa = 0, bb = 0, positive = 0, negative = 0;
    for (std::int64_t i = 0; i < d; ++i) {
      const double x = a.at(row, i), y = b.at(row, i), z = c.at(row, i);
      ab += x * y;
      aa += x * x;
      bb += y * y;
      positive += (x - y + 1e-6) * (x - y + 1e-6);
      negative += (x - z + 1e-6) * (x - z + 1e-6);
    }
    const double similarity = ab / std::sqrt(aa * bb);
    const auto at = static_cast<std::size_t>(row);
    CHECK(cosine[at] == Approx(row % 2 == 0 ? 1 - similarity : std::max(0.0, similarity - 0.1)));
    CHECK(triplet[at] == Approx(std::max(0.0, std::sqrt(positive) - std::sqrt(negative) + 0.3)));
  }
}

TEST_CASE("the negative log likelihood is normalised within its sample") {
  Tape tape({.private_data = true});
  const std::vector<double> lp{-1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12};
  const Var x = tape.input(Tensor::from(lp, {2, 3, 2}));
  const Tensor targets = Tensor::from(std::vector<std::int64_t>{0, 2, 9, 1}, {2, 2});
  const Tensor weights = Tensor::from(std::vector<double>{1, 2, 4}, {3});
  const std::vector<double> mean =
      nll_loss(x, targets, {.ignore_index = 9, .class_weights = weights})
          .value()
          .to_vector<double>();
  CHECK(mean[0] == Approx((1 * 1 + 4 * 6) / 5.0));
  CHECK(mean[1] == Approx(10));
  const std::vector<double> sum =
      nll_loss(x, targets, {.ignore_index = 9, .class_weights = weights}, Within::sum)
          .value()
          .to_vector<double>();
  CHECK(sum[1] == Approx(20));
  CHECK(throws([&] { nll_loss(x, targets); }, "target 9 of 3 classes"));
}

TEST_CASE("an ignored element of a loss may be NaN") {
  Tape tape({.private_data = true});
  const Var x = tape.input(
      Tensor::from(std::vector<double>{-1, -2, std::nan(""), std::nan("")}, {2, 2}), 0, true);
  const Tensor targets = Tensor::from(std::vector<std::int64_t>{1, 7}, {2});
  const Var loss = nll_loss(x, targets, {.ignore_index = 7, .class_weights = {}});
  CHECK(loss.value().to_vector<double>() == std::vector<double>{2, 0});
}

TEST_CASE("labels may be i32 or u8") {
  PublicRandom random(66);
  Tape tape;
  const Var x = rows(tape, random, -2, 2).var;
  const Tensor wide = Tensor::from(std::vector<std::int64_t>{0, 2, 1, 2}, {n});
  for (const Dtype dtype : {Dtype::i32, Dtype::u8}) {
    const Tensor narrow = to_dtype(wide, dtype);
    CHECK(cross_entropy(x, narrow).value().to_vector<double>() ==
          cross_entropy(x, wide).value().to_vector<double>());
    CHECK(nll_loss(x, narrow).value().to_vector<double>() ==
          nll_loss(x, wide).value().to_vector<double>());
  }
  const Tensor negative = Tensor::from(std::vector<std::int32_t>{0, 2, -1, 2}, {n});
  CHECK(throws([&] { cross_entropy(x, negative); }, "cross_entropy: target -1 of 3 classes"));
  CHECK_NOTHROW(cross_entropy(x, negative, {.ignore_index = -1}));
  const Tensor real = to_dtype(wide, Dtype::f32);
  CHECK(throws([&] { cross_entropy(x, real); }, "cross_entropy: targets f32 (4)"));
  CHECK(throws([&] { cross_entropy(x, wide, {.z_loss = -1}); }, "cross_entropy: z-loss -1"));
}

TEST_CASE("losses refuse targets of another shape") {
  Tape tape;
  const Var x = tape.input(zeros({2, 3})), t = tape.input(zeros({2, 1}));
  CHECK(throws([&] { absolute_error(x, t); }, "absolute_error: (2, 3) and target (2, 1)"));
  CHECK(throws([&] { huber_loss(x, x, 0); }, "delta 0"));
}
