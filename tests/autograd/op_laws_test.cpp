// The laws that every operation on the tape obeys, on random cases of each, with fixed seeds.
// SOTTO_OP_INSTANCES sets the number of cases.
// File tags: [alone]
#include <algorithm>
#include <cstdlib>

#include "autograd/check/op_run.h"
#include "autograd/op.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"

using namespace sotto;
using namespace sotto::testing;

namespace {

// The cases of operations that engines implement differently.
std::vector<OpCase> engine_cases() {
  std::vector<OpCase> cases;
  add_product_cases(cases);
  add_image_cases(cases);
  return cases;
}

// The instance with values that `dtype` can represent, so that only the arithmetic differs.
Instance rounded(Instance instance, Dtype dtype) {
  for (OpInput& x : instance.inputs) {
    if (is_float(x.value.dtype())) x.value = to_dtype(to_dtype(x.value, dtype), Dtype::f64);
  }
  return instance;
}

// The instance with 0 in place of `size` in every shape.
Instance emptied(Instance instance, std::int64_t size) {
  for (OpInput& x : instance.inputs) {
    for (int axis = 0; axis < x.value.rank(); ++axis) {
      if (x.value.size(axis) == size) x.value = x.value.slice(axis, 0, 0);
    }
  }
  return instance;
}

// The largest difference, relative to the largest expected value.
double error(const Tensor& y, const Tensor& expected) {
  const std::vector<double> got = values(y), wanted = values(expected);
  REQUIRE(got.size() == wanted.size());
  double largest = 1, difference = 0;
  for (std::size_t k = 0; k < got.size(); ++k) {
    largest = std::max(largest, std::abs(wanted[k]));
    const double here = std::abs(got[k] - wanted[k]);
    if (!(here <= difference)) difference = here;  // NaN stays NaN
  }
  return difference / largest;
}

}  // namespace

TEST_CASE("every registered operation has a case, and every case a registered operation") {
  // Captured losses exist on GPUs only (captured_loss_test.cpp).
  CHECK(ops_without_case(op_cases()) == std::vector<std::string>{"captured_loss"});
  const auto registered = registered_ops();
  for (const OpCase& one : op_cases()) {
    INFO(one.op);
    CHECK(std::count_if(registered.begin(), registered.end(),
                        [&](const char* op) { return one.op == op; }) == 1);
  }
}

TEST_CASE("every operation obeys the laws of gradients and of samples", "[gate]") {
  CheckOptions options;
  if (const char* wanted = std::getenv("SOTTO_OP_INSTANCES")) options.instances = std::atoi(wanted);
  std::vector<OpCase> cases = op_cases();
  for_each_engine([&](Backend& engine) {
    options.seed = 2024;
    options.exact = engine.name().starts_with("cpu");
    for (const OpCase& one : std::exchange(cases, engine_cases())) {
      CHECK_NOTHROW(check_op(one, options));
      ++options.seed;
    }
  });
}

TEST_CASE("every operation takes empty axes or names them in an error", "[gate]") {
  for_each_engine([&](Backend&) {
    for (const OpCase& one : op_cases()) {
      PublicRandom random(78);
      std::int64_t ran = 0;
      for (int i = 0; i < 40; ++i) {
        const Instance drawn = one.make(random);
        for (const std::int64_t size : {1, 2, 3, 4}) {
          INFO(one.op << ", " << one.what << ", without the axes of size " << size);
          try {
            run_case(with_loss(emptied(drawn, size), random), Dtype::f32);
            ++ran;
          } catch (const std::invalid_argument&) {
          }
        }
      }
      CHECK(ran > 0);
    }
  });
}

TEST_CASE("every operation runs in half precision, forward and backward") {
  // An op may consist of several kernels, each of which rounds its result.
  constexpr double factor = 4;
  for (const OpCase& one : op_cases()) {
    PublicRandom random(77);
    for (int i = 0; i < 6; ++i) {
      const Instance drawn = with_loss(one.make(random), random);
      for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
        INFO(one.op << ", " << one.what << " in " << name(dtype));
        const Instance instance = rounded(drawn, dtype);
        const OpRun wide = run_case(instance, Dtype::f64), run = run_case(instance, dtype);
        const double tolerated = factor * tolerance(dtype);
        CHECK(run.output.dtype() == dtype);
        CHECK(error(run.output, wide.output) <= tolerated);
        for (std::size_t k = 0; k < run.grads.size(); ++k) {
          if (run.grads[k].defined()) CHECK(error(run.grads[k], wide.grads[k]) <= tolerated);
          if (!run.uses[k].empty())
            CHECK(error(rows_of_uses(run.uses[k]), rows_of_uses(wide.uses[k])) <= tolerated);
        }
      }
    }
  }
}
