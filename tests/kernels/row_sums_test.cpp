// Squared norms of rows and weighted sums of them, over the whole range of float.
// File tags: [sanitized][simd]
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/threads/simd_dispatch.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

TEST_CASE("squared norms of float rows are those of double, over the whole range of float") {
  Random random(48);
  for (const double scale : {1e-38, 1e-25, 1e-13, 1e-3, 1.0, 1e3, 1e15, 1e19, 1e30, 1e37}) {
    for (const std::int64_t count : {1, 7, 15, 33, 50, 63, 64, 1000}) {
      const Tensor x = zeros({3, count});
      std::uniform_real_distribution<double> uniform(-scale, scale);
      fill(x, [&] { return uniform(random); });
      Tensor y = zeros({3}, Dtype::f64);
      backend(cpu).row_dot(x.view(), x.view(), y.view());
      const std::vector<double> xs = values(x), got = values(y);
      for (std::size_t row = 0; row < 3; ++row) {
        const auto first = xs.begin() + static_cast<std::ptrdiff_t>(row) * count;
        const double expected = std::inner_product(first, first + count, first, 0.0);
        INFO("scale " << scale << ", " << count << " values");
        CHECK(got[row] == Approx(expected).epsilon(0x1p-21).margin(0));
      }
    }
  }
}

TEST_CASE("a row's squared norm depends on no other row, in AVX-512 nor on zeros at its end") {
  Random random(49);
  const auto squares = [](const Tensor& x) {
    Tensor y = zeros({x.size(0)}, Dtype::f64);
    backend(cpu).row_dot(x.view(), x.view(), y.view());
    return values(y);
  };
  for (const std::int64_t width : {2, 9, 16, 50, 64, 104, 129}) {
    constexpr std::int64_t max = 21;
    Tensor x = random_tensor(random, {max, width}, {0, 1}, Dtype::f32);
    // Some rows exceed or underflow the sums in float, and are recomputed in f64.
    for (std::int64_t i = 0; i < width; ++i) {
      x.data<float>()[3 * width + i] *= 1e25F;
      x.data<float>()[6 * width + i] *= 1e-25F;
    }
    const std::vector<double> all = squares(x);
    for (std::int64_t rows = 1; rows <= max; ++rows) {
      const std::vector<double> last = squares(x.slice(0, max - rows, max));
      INFO(width << " columns, " << rows << " rows");
      CHECK(std::equal(last.begin(), last.end(), all.end() - rows));
    }
    if (!has_avx512()) continue;
    const Tensor longer = zeros({max, width + 70});
    copy_into(x, longer.slice(1, 0, width));
    CHECK(squares(longer) == all);
  }
}

TEST_CASE("weights of zero leave out what is not finite, in however few columns") {
  constexpr std::int64_t rows = 19;
  for (std::int64_t width = 1; width <= 6; ++width) {
    const Tensor x = full({rows, width}, 1.0), w = full({rows}, 0.5);
    for (const std::int64_t row : {2, 18}) {
      w.data<float>()[row] = 0;
      x.data<float>()[row * width] = std::nanf("");
      x.data<float>()[row * width + width - 1] = HUGE_VALF;
    }
    const Tensor y = full({width}, 3.0);
    backend(cpu).weighted_sum(x.view(), w.view(), 2, y.view());
    for (const double got : values(y)) CHECK(got == 0.5 * (rows - 2) + 2 * 3.0);
  }
}

TEST_CASE("a value that is not finite affects its row's squared norm and no other's") {
  constexpr std::int64_t width = 50;
  for (std::int64_t at = 0; at < width; ++at) {
    for (const float value : {HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
      const Tensor x = full({3, width}, 1.0);
      x.data<float>()[width + at] = value;
      Tensor y = zeros({3}, Dtype::f64);
      backend(cpu).row_dot(x.view(), x.view(), y.view());
      const std::vector<double> got = values(y);
      INFO(value << " at " << at);
      CHECK(got[0] == width);
      CHECK((std::isnan(value) ? std::isnan(got[1]) : got[1] == HUGE_VAL));
      CHECK(got[2] == width);
    }
  }
}

TEST_CASE("a Gram form of one gradient with itself is its squared norm, for any positions") {
  Random random(50);
  const auto form = [](const Tensor& a1, const Tensor& b1, const Tensor& a2, const Tensor& b2) {
    const Tensor y = zeros({a1.size(0)}, Dtype::f64);
    backend(cpu).gram_dot(a1.view(), b1.view(), a2.view(), b2.view(), y.view());
    return values(y);
  };
  for (const std::int64_t positions : {2, 47, 48, 49, 100, 145}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
      const Tensor a = random_tensor(random, {3, positions, 70}, {0, 1, 2}, dtype),
                   b = random_tensor(random, {3, positions, 9}, {0, 1, 2}, dtype);
      INFO(name(dtype) << ", " << positions << " positions");
      const std::vector<double> norms = form(a, b, a, b), pairs = form(a, b, clone(a), clone(b));
      for (std::size_t n = 0; n < 3; ++n) {
        const auto sample = static_cast<std::int64_t>(n);
        const Tensor gradient = gemm(to_dtype(b.select(0, sample), Dtype::f64).transpose(0, 1),
                                     to_dtype(a.select(0, sample), Dtype::f64));
        const double square = sum(mul(gradient, gradient)).item();
        CHECK(norms[n] == Approx(square).epsilon(1e-4));
        CHECK(pairs[n] == Approx(square).epsilon(1e-4));
      }
    }
  }
}
