// Inner products of per-sample gradients with one direction.
#include <cmath>

#include "autograd/ops.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"
#include "core/random/philox.h"
#include "tests/support/catch.h"
#include "tests/support/per_sample_cases.h"

namespace sotto {
namespace {

// The four forms, one of them of a convolution in groups.
std::vector<PerSampleGrad> all_forms(PublicRandom& random, std::int64_t n, Dtype dtype) {
  const Common c{.n = n, .o = 3, .i = 4, .groups = 2, .dtype = dtype};
  return {random_outer(random, c), random_onehot(random, c), random_dense(random, c),
          random_patches(random, c)};
}

Tensor random_direction(PublicRandom& random, const PerSampleGrad& f) {
  return to_dtype(uniform_values(random, f.shape()), f.dtype());
}

TEST_CASE("the product with a direction is that of the materialized gradient, in every form") {
  PublicRandom random(1);
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    for (const PerSampleGrad& f : all_forms(random, 5, dtype)) {
      if (dtype == Dtype::bf16 && f.form() == std::string_view("dense")) continue;
      const Tensor v = random_direction(random, f);
      const auto got = dot(f, v).to_vector<double>();
      const Tensor rows = to_dtype(f.materialize(), Dtype::f64), wide = to_dtype(v, Dtype::f64);
      for (std::int64_t n = 0; n < f.samples(); ++n) {
        const double expected = sum(mul(rows[n], wide)).item();
        const double scale = std::sqrt(sum(mul(rows[n], rows[n])).item());
        const double off = std::abs(got[static_cast<std::size_t>(n)] - expected);
        INFO(f.form() << " in " << name(dtype) << ", sample " << n);
        CHECK(off <= (dtype == Dtype::f64 ? 1e-13 : 1e-5) * (1 + scale));
      }
    }
  }
}

TEST_CASE("a sample's product with a direction has the same bits in any company") {
  PublicRandom random(2);
  for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
    for (const PerSampleGrad& f : all_forms(random, 37, dtype)) {
      const Tensor v = random_direction(random, f);
      const auto together = dot(f, v).to_vector<double>();
      for (const auto& [begin, end] : {std::pair{0, 1}, {3, 4}, {5, 12}, {36, 37}}) {
        const auto apart = dot(f.slice(begin, end), v).to_vector<double>();
        for (std::size_t k = 0; k < apart.size(); ++k)
          CHECK(apart[k] == together[static_cast<std::size_t>(begin) + k]);
      }
    }
  }
}

TEST_CASE("a batch without samples has no products, and another shape or type is refused") {
  PublicRandom random(3);
  for (const PerSampleGrad& f : all_forms(random, 0, Dtype::f64))
    CHECK(dot(f, random_direction(random, f)).shape() == Shape{0});
  const PerSampleGrad f = random_outer(random, {.n = 2, .o = 3, .i = 4});
  CHECK_THROWS_AS(dot(f, zeros({4, 3}, Dtype::f64)), std::invalid_argument);
  CHECK_THROWS_AS(dot(f, zeros({3, 4}, Dtype::f32)), std::invalid_argument);
  CHECK_THROWS_AS(dot(f, Tensor()), std::invalid_argument);
}

TEST_CASE("the sink adds the products of all uses of all parameters that have a direction") {
  PublicRandom random(4);
  Parameter w(uniform_values(random, {3, 3})), b(uniform_values(random, {3})),
      other(uniform_values(random, {3}));
  const Tensor x = uniform_values(random, {6, 3});
  const auto loss = [&](Tape& tape) {
    const Var h = tanh(linear(tape.input(x), tape.use(w), tape.use(b)));
    return sum_per_sample(linear(h, tape.use(w)) * tape.use(other));
  };
  const Gradients v{{&w, uniform_values(random, {3, 3})}, {&b, uniform_values(random, {3})}};
  Tape tape;
  DirectionSink sink(v);
  CHECK(!sink.products().defined());
  tape.backward(loss(tape), sink);
  Tape again;
  PerSampleGradSink rows;
  again.backward(loss(again), rows);
  const auto got = sink.products().to_vector<double>();
  for (std::int64_t n = 0; n < 6; ++n) {
    double expected = 0;
    for (const auto& [parameter, direction] : v)
      expected += sum(mul(rows.rows(*parameter)[n], direction)).item();
    CHECK(got[static_cast<std::size_t>(n)] == Approx(expected).epsilon(1e-12));
  }
}

}  // namespace
}  // namespace sotto
