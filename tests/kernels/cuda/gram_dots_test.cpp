// Gram forms of inner products by the GPU's kernels, run on the host and on every GPU, where some
// samples' terms cancel, so that their gradients are computed after all.
// File tags: [gpu][sanitized]
#include "tests/support/kernel_cases.h"

using namespace sotto;
using Catch::Approx;

namespace {

// Two factors of gradients; samples 0 and 2 have three positions whose terms nearly cancel.
struct Factors {
  Tensor a, b;

  Factors(Random& random, std::int64_t inputs, std::int64_t outputs, Dtype dtype)
      : a(random_tensor(random, {3, 3, inputs}, {0, 1, 2}, dtype)),
        b(random_tensor(random, {3, 3, outputs}, {0, 1, 2}, dtype)) {
    for (const std::int64_t n : {0, 2}) {
      repeat(a, n, {1, 1, 1});
      repeat(b, n, {1, 1, -2});
      for (std::int64_t t = 0; t < 3; ++t) set_value(a, (3 * n + t) * inputs, t == 1 ? 1.0625 : 1);
    }
  }

 private:
  // Makes all rows of sample n multiples of its first.
  static void repeat(const Tensor& x, std::int64_t n, const double (&times)[3]) {
    const std::int64_t width = x.size(2);
    const std::vector<double> first = values(x.slice(0, n, n + 1).slice(1, 0, 1));
    for (std::int64_t t = 0; t < 3; ++t)
      for (std::int64_t i = 0; i < width; ++i)
        set_value(x, (3 * n + t) * width + i, times[t] * first[static_cast<std::size_t>(i)]);
  }
};

// sum_t b[n,t,o] a[n,t,i], in double.
std::vector<double> gradient(const Factors& f, std::int64_t n) {
  const std::int64_t inputs = f.a.size(2), outputs = f.b.size(2), positions = f.a.size(1);
  const std::vector<double> a = values(f.a), b = values(f.b);
  std::vector<double> y(static_cast<std::size_t>(inputs * outputs));
  for (std::int64_t t = n * positions; t < (n + 1) * positions; ++t)
    for (std::int64_t o = 0; o < outputs; ++o)
      for (std::int64_t i = 0; i < inputs; ++i)
        y[static_cast<std::size_t>(o * inputs + i)] +=
            b[static_cast<std::size_t>(t * outputs + o)] *
            a[static_cast<std::size_t>(t * inputs + i)];
  return y;
}

}  // namespace

TEST_CASE("device code: doubtful samples among others have the products of their gradients") {
  Random random(71);
  for (const Dtype dtype : float_dtypes) {
    // One part and several, tiles that are whole and not.
    for (const auto& [inputs, outputs] : {std::pair(2, 2), std::pair(5, 9), std::pair(131, 130)}) {
      const Factors f(random, inputs, outputs, dtype), g(random, inputs, outputs, dtype);
      for (const auto& [p, q] : {std::pair(&f, &f), std::pair(&f, &g)}) {
        for_each_device_code([&] {
          const Tensor y = unwritten({3}, Dtype::f64);
          backend(cpu).gram_dot(p->a.view(), p->b.view(), q->a.view(), q->b.view(), y.view());
          for (std::int64_t n = 0; n < 3; ++n) {
            const std::vector<double> u = gradient(*p, n), v = gradient(*q, n);
            double expected = 0, scale = 0;
            for (std::size_t k = 0; k < u.size(); ++k) {
              expected += u[k] * v[k];
              scale += std::abs(u[k] * v[k]);
            }
            const double accuracy = n == 1 ? 1e-5 : 1e-12;
            CHECK(std::abs(values(y)[static_cast<std::size_t>(n)] - expected) <= accuracy * scale);
          }
        });
      }
    }
  }
}

TEST_CASE("device code: a Gram form is two products and two launches, doubtful samples or not") {
  Random random(72);
  const Factors f(random, 6, 6, Dtype::f32);
  const DeviceCodeOnHost device_code;
  const Tensor y = unwritten({3}, Dtype::f64);
  const std::int64_t before = launches_at_once();
  backend(cpu).gram_dot(f.a.view(), f.b.view(), f.a.view(), f.b.view(), y.view());
  CHECK(launches_at_once() - before == 4);
}
