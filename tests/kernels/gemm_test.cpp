// File tags: [gpu][optimised][sanitized][simd]
#include <algorithm>
#include <functional>
#include <numeric>

#include "core/threads/parallel.h"
#include "kernels/host_device/bf16_split.h"
#include "kernels/host_device/fold_batch.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/captured_setup.h"
#include "tests/support/fake_gpu_counts.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

struct Sizes {
  std::int64_t batch, m, k, n;
};

std::vector<double> naive_product(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = values(a), y = values(b);
  const std::int64_t batch = a.size(0), m = a.size(1), k = a.size(2), n = b.size(2);
  std::vector<double> c(static_cast<std::size_t>(batch * m * n));
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  for (std::int64_t item = 0; item < batch; ++item) {
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        for (std::int64_t t = 0; t < k; ++t) {
          c[at((item * m + i) * n + j)] +=
              x[at((item * m + i) * k + t)] * y[at((item * k + t) * n + j)];
        }
      }
    }
  }
  return c;
}

std::vector<double> sum_of(std::vector<double> a, const std::vector<double>& b) {
  std::transform(a.begin(), a.end(), b.begin(), a.begin(), std::plus<>());
  return a;
}

// A batch in random memory order, sometimes one item repeated or every second column of a wider
// one.
Tensor operand(Random& random, const Shape& shape, Dtype dtype) {
  switch (between(random, 0, 3)) {
    case 0: return random_tensor(random, {1, shape[1], shape[2]}, dtype).expand(shape);
    case 1:
      return random_tensor(random, {shape[0], shape[1], 2 * shape[2]}, dtype)
          .slice(2, 0, 2 * shape[2], 2);
    default: return random_tensor(random, shape, dtype);
  }
}

// [rows, k] stored by rows or by columns, as every second column of a wider matrix, or as one row
// or column repeated.
Tensor rows_in_memory(Random& random, std::int64_t rows, std::int64_t k, Dtype dtype) {
  switch (between(random, 0, 5)) {
    case 0: return random_tensor(random, {rows, 2 * k}, {0, 1}, dtype).slice(1, 0, 2 * k, 2);
    case 1: return random_tensor(random, {1, k}, {0, 1}, dtype).expand({rows, k});
    case 2: return random_tensor(random, {rows, 1}, {0, 1}, dtype).expand({rows, k});
    case 3: return random_tensor(random, {k, rows}, {0, 1}, dtype).transpose(0, 1);
    default: return random_tensor(random, {rows, k}, {0, 1}, dtype);
  }
}

// The types that a product of factors of one type may have.
std::vector<Dtype> results_of(Dtype factors) {
  if (factors == arithmetic_type(factors)) return {factors};
  return {factors, Dtype::f32};
}

void check_product(Backend& engine, Random& random, const Sizes& s, Dtype dtype) {
  const Tensor a = operand(random, {s.batch, s.m, s.k}, dtype);
  const Tensor b = operand(random, {s.batch, s.k, s.n}, dtype);
  const std::vector<double> product = naive_product(a, b);
  for (const Dtype result : results_of(dtype)) {
    INFO(name(dtype) << " to " << name(result) << ' ' << s.batch << ' ' << s.m << ' ' << s.k << ' '
                     << s.n << ' ' << to_string(a.strides()) << to_string(b.strides()));
    const Tensor c = unwritten({s.batch, s.m, s.n}, result),
                 again = unwritten({s.batch, s.m, s.n}, result);
    engine.gemm(a.view(), b.view(), 0, c.view());
    check_close(c, product);
    engine.gemm(a.view(), b.view(), 0, again.view());
    CHECK(same_bits(c, again));
    const Tensor sum = random_tensor(random, {s.batch, s.m, s.n}, {0, 1, 2}, result);
    const std::vector<double> expected = sum_of(product, values(sum));
    engine.gemm(a.view(), b.view(), 1, sum.view());
    check_close(sum, expected);
  }
}

}  // namespace

TEST_CASE("gemm is the sum of products, for any strides, sizes and types", "[gate]") {
  for_each_engine([](Backend& engine) {
    Random random(1);
    for (int round = 0; round < 60; ++round) {
      const Sizes sizes{between(random, 1, 5), between(random, 1, 70), between(random, 1, 70),
                        between(random, 1, 70)};
      for (const Dtype dtype : float_dtypes) check_product(engine, random, sizes, dtype);
    }
    for (const Sizes& sizes : {Sizes{1, 300, 200, 130}, Sizes{1, 1, 500, 400},
                               Sizes{1, 400, 500, 1}, Sizes{3, 33, 129, 257}, Sizes{200, 5, 6, 7},
                               Sizes{1, 40, 1100, 70}, Sizes{1, 1100, 20, 30}}) {
      for (const Dtype dtype : float_dtypes) check_product(engine, random, sizes, dtype);
    }
  });
}

TEST_CASE("gemm over no terms is zero, or leaves c unchanged") {
  for_each_engine([](Backend& engine) {
    Random random(2);
    for (const Dtype dtype : float_dtypes) {
      for (const Sizes& sizes : {Sizes{0, 3, 4, 5}, Sizes{2, 0, 4, 5}, Sizes{2, 3, 0, 5},
                                 Sizes{2, 3, 4, 0}, Sizes{1, 1, 0, 1}}) {
        check_product(engine, random, sizes, dtype);
      }
    }
  });
}

TEST_CASE("gemm takes matrices without a batch, and one b for a batch of a") {
  for_each_engine([](Backend& engine) {
    Random random(3);
    const Tensor a = random_tensor(random, {4, 20, 30}, {0, 1, 2}, Dtype::f32);
    const Tensor b = random_tensor(random, {30, 40}, Dtype::f32);
    const Tensor whole = unwritten({4, 20, 40}, Dtype::f32);
    engine.gemm(a.view(), b.view(), 0, whole.view());
    check_close(whole, naive_product(a, b.expand({4, 30, 40})));
    const Tensor one = unwritten({20, 40}, Dtype::f32);
    engine.gemm(a.select(0, 2).view(), b.view(), 0, one.view());
    check_close(one.unsqueeze(0), naive_product(a.slice(0, 2, 3), b.unsqueeze(0)));
  });
}

TEST_CASE("affine adds a bias to every row of a product, also with no terms") {
  for_each_engine([](Backend& engine) {
    Random random(5);
    std::vector<Shape> all{{70, 900, 500}, {1, 800, 600}, {300, 800, 5}, {1, 500, 3}};
    for (int round = 0; round < 20; ++round)
      all.push_back({between(random, 0, 9), between(random, 0, 20), between(random, 0, 40)});
    for (const Shape& sizes : all) {
      const std::int64_t m = sizes[0], k = sizes[1], n = sizes[2];
      for (const Dtype dtype : float_dtypes) {
        CAPTURE(sizes, name(dtype));
        const Tensor a = operand(random, {1, m, k}, dtype), b = operand(random, {1, k, n}, dtype);
        const Tensor bias = operand(random, {1, 1, n}, dtype);
        const Tensor c = unwritten({1, m, n}, dtype);
        engine.affine(a.select(0, 0).view(), b.select(0, 0).view(), bias.select(0, 0).view(),
                      c.select(0, 0).view());
        check_close(c, sum_of(naive_product(a, b), values(bias.expand({1, m, n}))));
      }
    }
  });
}

TEST_CASE("gemm writes rows with gaps between them") {
  for_each_engine([](Backend& engine) {
    Random random(4);
    for (const Dtype dtype : float_dtypes) {
      const Tensor a = random_tensor(random, {2, 9, 30}, dtype);
      const Tensor b = random_tensor(random, {2, 30, 11}, dtype);
      for (const Dtype result : results_of(dtype)) {
        const Tensor wide = unwritten({2, 9, 16}, result);
        const Tensor c = wide.slice(2, 3, 14);
        engine.gemm(a.view(), b.view(), 0, c.view());
        check_close(c, naive_product(a, b));
        for (const double gap : values(wide.slice(2, 14, 16))) CHECK(std::isnan(gap));
      }
    }
  });
}

TEST_CASE("gemm sums 16-bit numbers in float and can give f32 results") {
  for_each_engine([](Backend& engine) {
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
      const Tensor ones = fill(Tensor::empty({1, 1, 5000}, dtype), [] { return 1.0; });
      const Tensor c = unwritten({1, 1, 1}, Dtype::f32);
      engine.gemm(ones.view(), ones.transpose(1, 2).view(), 0, c.view());
      CHECK(c.item() == 5000);
    }
  });
}

TEST_CASE("every 16-bit number is its own product with one, in f32") {
  const std::int64_t rows = 24, count = 1 << 16;
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    // Instructions for pairs take subnormal numbers for zeros.
    if (backend(cpu).chain_of_products(dtype) == pair_chain) continue;
    const Tensor numbers = Tensor::empty({1, count}, dtype),
                 ones = fill(Tensor::empty({rows, 1}, dtype), [] { return 1.0; });
    auto* const bits = static_cast<std::uint16_t*>(numbers.view().data);
    std::iota(bits, bits + count, std::uint16_t{0});
    const std::vector<double> expected = values(numbers);
    const Tensor across = gemm_f32(ones, numbers),
                 down = gemm_f32(numbers.transpose(0, 1), ones.transpose(0, 1));
    for (const Tensor& y : {across.select(0, rows - 1), down.select(1, rows - 1)}) {
      const std::vector<double> products = values(y);
      for (std::size_t k = 0; k < products.size(); ++k) {
        const bool same =
            std::isnan(expected[k]) ? std::isnan(products[k]) : products[k] == expected[k];
        if (!same) FAIL(name(dtype) << " of bits " << k << ": " << products[k]);
      }
    }
  }
}

TEST_CASE("products of 16-bit tensors are of their type or f32, and can be added to either") {
  Random random(6);
  const Tensor plain = random_tensor(random, {3, 4}, Dtype::f32);
  CHECK(same_bits(gemm_f32(plain, plain.transpose(0, 1)), gemm(plain, plain.transpose(0, 1))));
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    const Tensor a = random_tensor(random, {2, 5, 9}, dtype),
                 b = random_tensor(random, {9, 7}, dtype);
    const std::vector<double> expected = naive_product(a, b.expand({2, 9, 7}));
    const Tensor narrow = gemm(a, b), wide = gemm_f32(a, b), sum = zeros_like(wide);
    CHECK(narrow.dtype() == dtype);
    CHECK(wide.dtype() == Dtype::f32);
    check_close(narrow, expected);
    check_close(wide, expected);
    outer_sum_add(a.transpose(1, 2), b, sum);
    check_close(sum, expected);
    const Tensor other = zeros({2, 5, 7}, dtype == Dtype::f16 ? Dtype::bf16 : Dtype::f16);
    CHECK(throws([&] { outer_sum_add(a.transpose(1, 2), b, other); }, name(other.dtype())));
    CHECK(throws([&] { gemm_f32(a, to_dtype(b, Dtype::f32)); }, "f32"));
  }
}

TEST_CASE("a NaN in one row of a leaves the bits of the other rows") {
  for_each_engine([](Backend& engine) {
    Random random(5);
    for (const Dtype dtype : float_dtypes) {
      for (const Sizes& s : {Sizes{3, 17, 40, 23}, Sizes{1, 64, 300, 10}, Sizes{1, 7, 9, 200}}) {
        const Tensor a = random_tensor(random, {s.batch, s.m, s.k}, {0, 1, 2}, dtype);
        const Tensor b =
            random_tensor(random, {1, s.k, s.n}, {0, 1, 2}, dtype).expand({s.batch, s.k, s.n});
        const Tensor before = unwritten({s.batch, s.m, s.n}, dtype),
                     after = unwritten({s.batch, s.m, s.n}, dtype);
        engine.gemm(a.view(), b.view(), 0, before.view());
        const std::int64_t row = s.m / 2;
        fill(a.select(0, 0).select(0, row), [] { return std::nan(""); });
        engine.gemm(a.view(), b.view(), 0, after.view());
        CHECK(same_bits(before.slice(1, 0, row), after.slice(1, 0, row)));
        CHECK(same_bits(before.slice(1, row + 1, s.m), after.slice(1, row + 1, s.m)));
        CHECK(same_bits(before.slice(0, 1, s.batch), after.slice(0, 1, s.batch)));
        CHECK(std::isnan(after.select(0, 0).select(0, row).select(0, 0).item()));
      }
    }
  });
}

// Otherwise the result for one sample would depend on the number of samples.
TEST_CASE("rows of a product on a CPU have the same bits however many and wherever they are") {
  const int threads = thread_count();
  Random random(52);
  for (const CpuEngine engine : {CpuEngine::portable, CpuEngine::onednn}) {
    if (!has_cpu_engine(engine)) continue;
    set_cpu_engine(engine);
    INFO(backend(cpu).name());
    for (int round = 0; round < 60; ++round) {
      const Dtype dtype = float_dtypes[round % std::size(float_dtypes)];
      const std::int64_t all = between(random, 100, round % 10 == 0 ? 700 : 300),
                         k = between(random, 1, round % 3 == 0 ? 1200 : 80),
                         n = round % 4 == 1 ? 1 : between(random, 1, round % 5 == 0 ? 300 : 40);
      const Tensor a = rows_in_memory(random, all, k, dtype),
                   b = random_tensor(random, {1, k, n}, dtype).squeeze(0);
      const Tensor bias = random_tensor(random, {n}, dtype);
      const Tensor whole = gemm(a, b), raised = affine(a, b, bias);
      INFO(name(dtype) << ", " << all << " rows, " << k << " x " << n);
      for (int cut = 0; cut < 8; ++cut) {
        const std::int64_t first = cut < 2 ? 0 : between(random, 0, all - 1),
                           last = between(random, first + 1,
                                          cut < 4 ? std::min(all, first + 20) : all);
        set_thread_count(static_cast<int>(between(random, 1, 3)));
        const Tensor rows = a.slice(0, first, last);
        INFO("rows " << first << " to " << last);
        CHECK(same_bits(gemm(rows, b), whole.slice(0, first, last)));
        CHECK(same_bits(affine(rows, b, bias), raised.slice(0, first, last)));
      }
      set_thread_count(threads);
    }
  }
}

TEST_CASE(
    "elements of a product in f32 and f64 have the same bits whatever is multiplied with them") {
  Random random(53);
  for (const CpuEngine engine : {CpuEngine::portable, CpuEngine::onednn}) {
    if (!has_cpu_engine(engine)) continue;
    set_cpu_engine(engine);
    INFO(backend(cpu).name());
    for (int round = 0; round < 40; ++round) {
      const Dtype dtype = round % 2 == 0 ? Dtype::f32 : Dtype::f64;
      const std::int64_t m = between(random, 1, 150), k = between(random, 1, round < 9 ? 900 : 60),
                         n = between(random, 1, round % 4 == 0 ? 600 : 70);
      const Tensor a = rows_in_memory(random, m, k, dtype),
                   b = rows_in_memory(random, n, k, dtype).transpose(0, 1), c = gemm(a, b);
      INFO(name(dtype) << ", " << m << " x " << k << " x " << n);
      const std::int64_t first = between(random, 0, n - 1), last = between(random, first + 1, n);
      CHECK(same_bits(gemm(a, b.slice(1, first, last)), c.slice(1, first, last)));
      CHECK(same_bits(gemm(b.transpose(0, 1), a.transpose(0, 1)).transpose(0, 1), c));
      // A single row, and a single column; only products with several use panels.
      const std::int64_t row = between(random, 0, m - 1);
      CHECK(same_bits(gemm(a.slice(0, row, row + 1), b), c.slice(0, row, row + 1)));
      CHECK(same_bits(gemm(a, b.slice(1, first, first + 1)), c.slice(1, first, first + 1)));
      // As one item of a batch with others.
      const Tensor items = concat({a.unsqueeze(0), scale(a, 3).unsqueeze(0)}, 0);
      CHECK(same_bits(gemm(items, b).select(0, 0), c));
      CHECK(same_bits(gemm(items, concat({b, b}, 1)).select(0, 0).slice(1, 0, n), c));
      // Extended by zeros.
      const std::int64_t more = between(random, 1, 500);
      const Tensor longer = concat({a, zeros({m, more}, dtype)}, 1);
      CHECK(same_bits(gemm(longer, concat({b, random_tensor(random, {more, n}, dtype)}, 0)), c));
    }
  }
}

TEST_CASE(
    "pieces of a factor add up to its weighted rows, and to nothing where the weight is zero") {
  Random random(61);
  for (int round = 0; round < 24; ++round) {
    const std::int64_t n = between(random, 0, 5),
                       k = round % 3 == 0 ? 8 * between(random, 1, 4) : between(random, 1, 30);
    const Tensor x = random_tensor(random, {n, k}, {0, 1}, Dtype::bf16),
                 w = random_tensor(random, {n}, Dtype::f64);
    if (n > 1) set_value(w, 1, 0), set_value(x, k, std::nan(""));
    if (n > 2) set_value(w, 2, 0), set_value(x, 3 * k - 1, HUGE_VAL);
    for_each_engine([&](Backend& engine) {
      const Tensor pieces = unwritten({float_bf16x2, n, k}, Dtype::bf16);
      engine.scale_to_bf16x2(x.view(), w.view(), pieces.view());
      const std::vector<double> factors = values(x), weights = values(w), p = values(pieces);
      for (std::size_t i = 0; i < factors.size(); ++i) {
        const double weight = weights[i / static_cast<std::size_t>(k)];
        const double expected = weight == 0 ? 0 : weight * factors[i];
        const double lacking = p[i] + p[factors.size() + i] - expected;
        REQUIRE(std::abs(lacking) <= bf16x2_rounding * std::abs(expected));
      }
    });
  }
}

TEST_CASE("a GPU's product of more items than a library takes is made in parts") {
  for_each_gpu([](Device device) {
    constexpr std::int64_t items = 2 * max_batch + 5;
    std::vector<float> numbers(2 * items);
    std::iota(numbers.begin(), numbers.end(), 0.0f);
    const Tensor a = Tensor::from(numbers, {items, 1, 2}).to(device);
    const auto before = pretended_counts();
    const Tensor y = gemm(a, a.transpose(1, 2));
    if (before) CHECK(pretended_counts()->launches - before->launches == 3);
    for (const std::int64_t item : {std::int64_t{0}, max_batch, 2 * max_batch, items - 1}) {
      const auto x = static_cast<double>(2 * item);
      CHECK(y.select(0, item).item() == Approx(x * x + (x + 1) * (x + 1)));
    }
  });
}
