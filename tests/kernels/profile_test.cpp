// The profile of kernels counts calls, with the operations that follow from the shapes.
#include "kernels/profile.h"

#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"

using namespace sotto;

TEST_CASE("a profile counts calls, operations and bytes by kernel and shape") {
  const Tensor a = full({2, 3, 5}, 1), b = full({5, 7}, 1);
  KernelProfile profile;
  gemm(a, b);
  gemm(a, b);
  unary(unary_index<functors::Tanh>, b);
  const std::vector<KernelTotal> totals = profile.totals();
  REQUIRE(totals.size() == 2);
  for (const KernelTotal& total : totals) {
    CHECK(total.seconds > 0);
    if (total.name == "unary tanh") {
      CHECK(total.calls == 1);
      CHECK(total.shapes == "5x7 5x7");
      CHECK(total.bytes == 2 * 35 * 4);
    } else {
      CHECK(total.name == "gemm");
      CHECK(total.calls == 2);
      CHECK(total.flops == 2 * 2 * (2 * 3 * 5 * 7));
      CHECK(total.bytes == 2 * 4 * (2 * 3 * 5 + 5 * 7 + 2 * 3 * 7));
    }
  }
}

TEST_CASE("a profile ends with its lifetime, and only one exists at a time") {
  const std::string engine = backend(cpu).name();
  const Tensor square = full({2, 2}, 1), wide = full({2, 3}, 1);
  {
    KernelProfile profile;
    CHECK(backend(cpu).name() == engine);
    CHECK_THROWS_AS(KernelProfile(), std::invalid_argument);
    gemm(square, square);
    gemm(square, wide);
    CHECK(profile.totals().size() == 2);
    CHECK(profile.totals_by_name().size() == 1);
    profile.reset();
    CHECK(profile.totals().empty());
  }
  KernelProfile again;
  CHECK(again.totals().empty());
}

TEST_CASE("a convolution's passes count the same operations") {
  Window window;
  window.kernel[1] = window.kernel[2] = 3;
  const Tensor x = full({2, 4, 1, 6, 6}, 1), w = full({8, 4, 1, 3, 3}, 1);
  const Tensor dy = full({2, 8, 1, 4, 4}, 1);
  KernelProfile profile;
  conv(x, w, {}, window);
  conv_data(dy, w, window, x.shape());
  conv_weight(dy, x, window, w.shape());
  int passes = 0;
  for (const KernelTotal& total : profile.totals_by_name()) {
    if (total.name.starts_with("conv")) {
      CHECK(total.flops == 2.0 * 2 * 8 * 16 * 4 * 9);
      ++passes;
    }
  }
  CHECK(passes == 3);
}
