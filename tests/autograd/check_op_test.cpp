// Tests of the laws themselves: each of these operations breaks one, and check_op() must name it.
#include <algorithm>
#include <cmath>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/check/check_layer.h"
#include "tests/support/catch.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

const Op broken_op("broken");

// An operation with one batched input [n, 3], or with a parameter [3] besides.
OpCase one_input(std::function<Var(const Var&)> f) {
  return {"broken", "one input", [f](PublicRandom& random) {
            return Instance{{{uniform_values(random, {draw(random, 2, 4), 3}), 0}},
                            [f](const std::vector<Var>& x) { return f(x[0]); }};
          }};
}
OpCase with_parameter(std::function<Var(const Var&, const Var&)> f) {
  return {"broken", "with a parameter", [f](PublicRandom& random) {
            return Instance{{{uniform_values(random, {draw(random, 2, 4), 3}), 0},
                             {uniform_values(random, {3})}},
                            [f](const std::vector<Var>& x) { return f(x[0], x[1]); }};
          }};
}

// Records y with a given backward; the op claims to keep its samples separate.
Var recorded(const Var& x, const Tensor& y, const std::function<Tensor(const Tensor&)>& pull) {
  return x.tape().record(
      broken_op, {x}, y, x.samples(),
      [pull](const Tensor& dy, Adjoint& adjoint) { adjoint.input(0, pull(dy)); });
}

bool breaks(const OpCase& op, const char* law) {
  return throws([&] { testing::check_op(op); }, law);
}

// y = x w, elementwise; `emitted` turns the true per-sample gradients into those passed on.
Var product(const Var& x, const Var& w,
            const std::function<PerSampleGrad(const Tensor&)>& emitted) {
  return x.tape().record(broken_op, {x, w}, mul(x.value(), w.value()), x.samples(),
                         [x = x.value(), w = w.value(), emitted](const Tensor& dy, Adjoint& a) {
                           if (a.wants(0)) a.input(0, mul(dy, w));
                           a.shared(1, emitted(mul(dy, x)));
                         });
}

}  // namespace

TEST_CASE("check_op finds a wrong derivative") {
  CHECK(breaks(
      one_input([](const Var& x) {
        const Tensor square = mul(x.value(), x.value());
        return recorded(x, square,
                        [at = x.value()](const Tensor& dy) { return scale(mul(dy, at), 2.001); });
      }),
      "broken (one input): \"gradients are derivatives\" does not hold for instance 0, ("));
}

TEST_CASE("check_op finds an operation that mixes samples without the tape's knowledge") {
  CHECK(breaks(one_input([](const Var& x) {
                 const double n = static_cast<double>(x.shape()[0]);
                 const auto centred = [n](const Tensor& t) {
                   return sub(t, scale(sum(t, {0}, true), 1 / n));
                 };
                 return recorded(x, centred(x.value()), centred);
               }),
               "a sample run alone gives equal results"));
}

TEST_CASE("check_op finds rounding that depends on how many samples there are") {
  CHECK(breaks(one_input([](const Var& x) {
                 const double n = static_cast<double>(x.shape()[0]);
                 const auto there_and_back = [n](const Tensor& t) {
                   return scale(scale(t, 0.1 * n), 1 / (0.1 * n));
                 };
                 return recorded(x, there_and_back(x.value()), there_and_back);
               }),
               "a sample run alone gives bit-equal results"));
}

TEST_CASE("check_op finds mixing that only a NaN of another sample reveals") {
  CHECK(breaks(one_input([](const Var& x) {
                 const Tensor nothing = scale(sum(x.value(), {0}, true), 0);
                 return recorded(x, add(x.value(), nothing), [](const Tensor& dy) { return dy; });
               }),
               "other samples change no bit"));
}

TEST_CASE("check_op finds a sum of gradients spread over the samples") {
  CHECK(breaks(with_parameter([](const Var& x, const Var& w) {
                 return product(x, w, [](const Tensor& rows) {
                   const double n = static_cast<double>(rows.size(0));
                   const Tensor mean = scale(sum(rows, {0}, true), 1 / n);
                   return PerSampleGrad::materialized(contiguous(mean.expand(rows.shape())));
                 });
               }),
               "a sample run alone gives equal results\" does not hold"));
}

// A function whose gradient is correct for uniform samples, but not where `wrong` is true.
OpCase wrong_where(bool (*wrong)(double x), double gradient) {
  return one_input([=](const Var& x) {
    Tensor slope = clone(x.value());
    std::vector<double> all = to_dtype(slope, Dtype::f64).to_vector<double>();
    for (double& v : all) v = wrong(v) ? gradient : 2;
    copy_into(Tensor::from(all, slope.shape()), slope);
    return recorded(x, scale(x.value(), 2), [slope](const Tensor& dy) { return mul(dy, slope); });
  });
}

TEST_CASE("check_op finds gradients that are wrong only in the tails or at zero") {
  constexpr const char* law = "value and gradient have no gaps at far and special values";
  CHECK(breaks(wrong_where([](double x) { return std::abs(x) > 2; }, 1), law));
  CHECK(breaks(wrong_where([](double x) { return x > 30; }, 1), law));
  CHECK(breaks(wrong_where([](double x) { return x < -80; }, 1), law));
  CHECK(breaks(wrong_where([](double x) { return x == 0; }, 0), law));
  CHECK(breaks(wrong_where([](double x) { return x == 1; }, std::nan("")), law));
  CHECK_NOTHROW(testing::check_op(wrong_where([](double) { return false; }, 0)));
}

TEST_CASE("check_op finds a value that is missing at zero, and one that overflows early") {
  constexpr const char* law = "value and gradient have no gaps at far and special values";
  // sin(x) / x and log(1 + e^x), computed as written.
  CHECK(breaks(one_input([](const Var& x) { return sin(x) / x; }), law));
  CHECK(breaks(one_input([](const Var& x) { return log(affine(exp(x), 1, 1)); }), law));
  CHECK_NOTHROW(testing::check_op(one_input([](const Var& x) { return softplus(x); })));
}

TEST_CASE("kinks, jumps, poles and the ends of a domain are no faults") {
  for (const auto f :
       {+[](const Var& x) { return relu(x); }, +[](const Var& x) { return abs(x); },
        +[](const Var& x) { return reciprocal(x); }, +[](const Var& x) { return log(x * x); },
        +[](const Var& x) { return exp(x); }})
    CHECK_NOTHROW(testing::check_op(one_input(f)));
}

TEST_CASE("one sample in each instance is no check") {
  // A batch norm that the tape does not recognize; with one sample it breaks no law.
  struct BatchNorm final : nn::Module {
    Var forward(const Var& x) override {
      const auto centred = [](const Tensor& t) {
        return sub(t, scale(sum(t, {0}, true), 1.0 / static_cast<double>(t.size(0))));
      };
      return recorded(x, centred(x.value()), centred);
    }
  } layer;
  const auto of = [](std::int64_t n) {
    return [n](PublicRandom& random) { return uniform_values(random, {n, 3}); };
  };
  CHECK(throws([&] { testing::check_layer(layer, of(1)); },
               "at most 1 samples in 24 instances; the laws need two or more samples"));
  CHECK(throws([&] { testing::check_layer(layer, of(2)); },
               "a sample run alone gives equal results"));
}

TEST_CASE("check_op finds a parameter whose gradient is missing") {
  CHECK(breaks(with_parameter([](const Var& x, const Var& w) {
                 return recorded(x, mul(x.value(), w.value()),
                                 [w = w.value()](const Tensor& dy) { return mul(dy, w); });
               }),
               "gradients are derivatives"));
}

TEST_CASE("check_op finds results that are less accurate than single precision") {
  CHECK(breaks(one_input([](const Var& x) {
                 Tensor y = x.value();
                 if (y.dtype() == Dtype::f32) y = to_dtype(to_dtype(y, Dtype::bf16), Dtype::f32);
                 return recorded(x, scale(y, 1), [](const Tensor& dy) { return dy; });
               }),
               "single precision agrees with double"));
}

TEST_CASE("check_op finds a backward that is wrong for gradients of many samples") {
  static const Op lifting_op("lifting", {.captures = Op::Captures::shared, .batchable = true});
  CHECK(breaks(one_input([](const Var& x) {
                 return x.tape().record(lifting_op, {x}, clone(x.value()), x.samples(),
                                        [](const Tensor& dy, Adjoint& adjoint) {
                                          adjoint.input(0, scale(dy, adjoint.batch_dims() ? 2 : 1));
                                        });
               }),
               "gradients are derivatives"));
}

TEST_CASE("check_op finds rows of samples that make a result which all samples share") {
  // As it would be without the tape's refusal, for an op that denies that it captures rows.
  static const Op weighing_op("weighing", {.captures = Op::Captures::shared});
  const auto weighed = [](const Var& x, const Tensor& weights) {
    const Tensor w = reshape(to_dtype(weights, x.dtype()), {weights.size(0), 1});
    return x.tape().record(
        weighing_op, {x}, mul(x.value(), w), x.samples(),
        [w](const Tensor& dy, Adjoint& adjoint) { adjoint.input(0, mul(dy, w)); });
  };
  const auto instance = [&](PublicRandom& random) {
    const std::int64_t n = draw(random, 2, 4);
    return Instance{{{uniform_values(random, {n, 3}), 0}, {random_ids(random, {n}, 4), 0, false}},
                    [&](const std::vector<Var>& x) { return weighed(x[0], x[1].value()); }};
  };
  CHECK(breaks({"weighing", "by numbers of samples", instance},
               "\"rows beside shared arguments make rows or are refused\" does not hold"));
}

TEST_CASE("check_op reports refusals of the tape itself") {
  CHECK(breaks(one_input([](const Var& x) { return sum(x, {0}); }), "sum: "));
}

TEST_CASE("a correct operation passes, and no instances are no check") {
  const OpCase good = with_parameter([](const Var& x, const Var& w) {
    return product(x, w, [](const Tensor& rows) { return PerSampleGrad::materialized(rows); });
  });
  CHECK_NOTHROW(testing::check_op(good));
  CHECK(throws([&] { testing::check_op(good, {.instances = 0}); }, "check_op: 0 instances"));
}

// The walk over the registry finds these, so an operation cannot be added without a case. Other
// tests of the program may have operations of their own.
TEST_CASE("an operation without a case is found") {
  const std::vector<std::string> found = ops_without_case(op_cases());
  for (const char* op : {"captured_loss", "broken", "lifting", "weighing"})
    CHECK(std::count(found.begin(), found.end(), op) == 1);
}
