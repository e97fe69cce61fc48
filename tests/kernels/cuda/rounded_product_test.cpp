// Sums of rounded products by the GPU's kernel, on the host and on every GPU, and by the CPU's,
// against sums in f64.
// File tags: [gpu][sanitized]
#include "kernels/backend.h"
#include "kernels/host_device/gemm_blocking.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

struct Problem {
  Tensor b, a, w, y;
  double spacing = 0x1p-30;

  bool add() const {
    return backend(cpu).add_rounded_products(b.view(), a.view(), w.view(), spacing, y.view());
  }
};

// Factors [n, t, columns] within rows of `pitch` elements, the first of which is left out if `odd`.
Tensor factor(Random& random, const Shape& shape, std::int64_t pitch, bool odd, Dtype dtype) {
  const Tensor all = random_tensor(random, {shape[0], shape[1], pitch}, {0, 1, 2}, dtype);
  return all.slice(2, odd ? 1 : 0, shape[2] + (odd ? 1 : 0));
}

// Weights of some samples are 0, and their rows NaN; the sum begins with multiples of its spacing.
Problem problem(Random& random, const Shape& sizes, std::int64_t gap, Dtype dtype) {
  const bool odd = gap % 2 == 1;
  const std::int64_t n = sizes[0], t = sizes[1], o = sizes[2], i = sizes[3];
  Problem p{factor(random, {n, t, o}, o + gap, odd, dtype),
            factor(random, {n, t, i}, i + gap, odd, dtype), random_tensor(random, {n}, Dtype::f64),
            full({o, i}, 3, Dtype::f64)};
  for (std::int64_t k = 1; k < n; k += 3) {
    p.w.data<double>()[k] = 0;
    for (const Tensor& x : {p.b.select(0, k), p.a.select(0, k)})
      fill(x, [] { return std::nan(""); });
  }
  return p;
}

// Checks that `y` is `before` and the weighted products, within u of a term's products for each
// position and a spacing for each term, and a multiple of the spacing.
void check_sum(const Problem& p, const std::vector<double>& y, double before) {
  const std::vector<double> b = values(p.b), a = values(p.a), w = values(p.w);
  const auto o = static_cast<std::size_t>(p.b.size(2)), i = static_cast<std::size_t>(p.a.size(2)),
             t = static_cast<std::size_t>(p.b.size(1));
  double worst = 0;
  for (std::size_t at = 0; at < o * i; ++at) {
    double sum = before, magnitude = 0, terms = 0;
    for (std::size_t n = 0; n < w.size(); ++n) {
      if (w[n] == 0) continue;
      terms += 1 + static_cast<double>(t / static_cast<std::size_t>(product_chain));
      for (std::size_t k = n * t; k < (n + 1) * t; ++k) {
        const double term = w[n] * b[k * o + at / i] * a[k * i + at % i];
        sum += term;
        magnitude += std::abs(term);
      }
    }
    const double allowed = static_cast<double>(t) * 0x1p-24 * magnitude + terms * p.spacing;
    const double off = std::abs(y[at] - sum) / allowed;
    if (!(off <= worst)) worst = off;
    if (std::fmod(y[at], p.spacing) != 0) worst = HUGE_VAL;
  }
  CHECK(worst < 1);
}

}  // namespace

TEST_CASE("rounded sums of products are those of f64, whatever the sizes and gaps") {
  Random random(91);
  const Shape all[] = {{1, 1, 1, 1},   {3, 16, 16, 16}, {5, 37, 40, 136},
                       {4, 33, 13, 7}, {7, 20, 129, 8}, {2, 500, 24, 40},
                       {4, 5, 3, 131}, {2, 800, 9, 10}, {11, 300, 20, 120}};
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16, Dtype::f32}) {
    for (const Shape& sizes : all) {
      for (const std::int64_t gap : {0, 1, 8}) {
        CAPTURE(name(dtype), sizes, gap);
        const Problem p = problem(random, sizes, gap, dtype);
        const auto check_own = [&] {
          Problem own = p;
          own.y = clone(p.y);
          REQUIRE(own.add());
          check_sum(own, values(own.y), 3);
        };
        for_each_device_code(check_own);
        if (sizes[1] <= product_chain) check_own();  // the CPU's own
      }
    }
  }
}

TEST_CASE("a rounded sum of products has a term for every chain of positions") {
  const Tensor ones = full({1, 2 * product_chain, 1}, 1), w = full({1}, 1, Dtype::f64);
  for_each_device_code([&] {
    const Problem p{ones, ones, w, zeros({1, 1}, Dtype::f64), 1024};
    REQUIRE(p.add());
    CHECK(values(p.y)[0] == 0);  // of two terms of 384, not of one of 768
  });
}

TEST_CASE("samples without a weight alone leave a rounded sum of products as it is") {
  for_each_device_code([&] {
    const Problem p{full({2, 3, 4}, std::nan("")), full({2, 3, 5}, std::nan("")),
                    zeros({2}, Dtype::f64), full({4, 5}, 7, Dtype::f64)};
    REQUIRE(p.add());
    for (const double y : values(p.y)) CHECK(y == 7);
  });
}

TEST_CASE("an infinite factor makes its elements of a rounded sum of products not finite") {
  const Tensor b = full({1, 20, 8}, 1, Dtype::bf16), a = full({1, 20, 8}, 1, Dtype::bf16);
  set_value(b, 19 * 8 + 2, HUGE_VAL);
  for_each_device_code([&] {
    const Problem p{b, a, full({1}, 1, Dtype::f64), zeros({8, 8}, Dtype::f64)};
    REQUIRE(p.add());
    const std::vector<double> y = values(p.y);
    for (std::size_t k = 0; k < y.size(); ++k) CHECK(std::isfinite(y[k]) == (k / 8 != 2));
  });
}

TEST_CASE("factors of f64 have no kernel for rounded sums of products") {
  const Tensor x = full({1, 2, 3}, 1, Dtype::f64), w = full({1}, 1, Dtype::f64);
  for_each_device_code([&] { CHECK_FALSE(Problem{x, x, w, zeros({3, 3}, Dtype::f64)}.add()); });
}
