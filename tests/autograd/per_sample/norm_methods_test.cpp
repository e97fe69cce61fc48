// The computation of per-sample norms: the choice of the method, and its accuracy.
#include <algorithm>
#include <array>
#include <set>

#include "autograd/per_sample/per_sample_grad.h"
#include "core/allocator/allocator.h"
#include "core/devices.h"
#include "core/random/philox.h"
#include "kernels/profile.h"
#include "tests/support/per_sample_cases.h"

using namespace sotto;

namespace {

constexpr std::size_t plenty = std::size_t{1} << 30;

PerSampleGrad linear_use(std::int64_t n, std::int64_t t, std::int64_t i, std::int64_t o) {
  return PerSampleGrad::outer(zeros({n, t, o}), zeros({n, t, i}), {o, i});
}

PerSampleGrad conv_use(std::int64_t n, std::int64_t c, std::int64_t o, std::int64_t side,
                       std::int64_t kernel) {
  Window window;
  for (const int axis : {1, 2}) {
    window.kernel[axis] = kernel;
    window.before[axis] = window.after[axis] = kernel / 2;
  }
  return PerSampleGrad::patches(zeros({n, o, 1, side, side}), zeros({n, c, 1, side, side}), window,
                                {o, c, kernel, kernel});
}

// Factors whose sums cancel: activations that vary little around an offset, and output gradients
// whose sum over positions is almost zero.
struct Cancelling {
  Tensor b, a;
};

Cancelling cancelling(PublicRandom& random, const Shape& activations, const Shape& gradients,
                      double offset) {
  Tensor a = add(uniform_values(random, activations, -1, 1), full({}, offset, Dtype::f64));
  Tensor b = uniform_values(random, gradients, -1, 1);
  Shape positions;
  for (int i = 1; i + 1 < b.rank(); ++i) positions.push_back(i);
  const Tensor total = sum(b, positions, true);
  b = sub(b, scale(total, static_cast<double>(total.numel()) / static_cast<double>(b.numel())));
  // Both computations start from values that f32 represents exactly.
  return {to_dtype(b, Dtype::f32), to_dtype(a, Dtype::f32)};
}

// The largest relative error of the norms by any method, compared with f64.
template <class Make>
double norm_error(const Cancelling& factors, Make&& make) {
  const PerSampleGrad wide = make(to_dtype(factors.b, Dtype::f64), to_dtype(factors.a, Dtype::f64));
  const std::vector<double> expected = values(dot(wide, wide, NormMethod::materialize));
  const PerSampleGrad f = make(factors.b, factors.a);
  double worst = 0;
  for (const NormMethod norm_method :
       {NormMethod::automatic, NormMethod::ghost, NormMethod::materialize}) {
    const std::vector<double> found = values(dot(f, f, norm_method));
    for (std::size_t n = 0; n < found.size(); ++n) {
      const double error = std::abs(std::sqrt(found[n] / expected[n]) - 1);
      worst = error <= worst ? worst : error;
    }
  }
  return worst;
}

constexpr double offsets[] = {1, 10, 100, 1000};
constexpr double norm_accuracy = 1e-4;

}  // namespace

TEST_CASE("a linear layer of one position never materializes gradients") {
  for (const std::int64_t width : {1, 8, 512, 4096}) {
    CHECK(linear_use(2, 1, width, width)
              .materialize_if_cheaper(NormMethod::automatic, plenty)
              .form() == std::string("outer"));
  }
}

TEST_CASE("many positions of a small weight materialize, few of a large one keep factors") {
  CHECK(conv_use(2, 3, 16, 32, 3).materialize_if_cheaper(NormMethod::automatic, plenty).form() ==
        std::string("dense"));
  CHECK(linear_use(2, 1024, 16, 16).materialize_if_cheaper(NormMethod::automatic, plenty).form() ==
        std::string("dense"));
  CHECK(linear_use(2, 8, 1024, 1024).materialize_if_cheaper(NormMethod::automatic, plenty).form() ==
        std::string("outer"));
  CHECK(conv_use(2, 256, 256, 2, 3).materialize_if_cheaper(NormMethod::automatic, plenty).form() ==
        std::string("patches"));
}

TEST_CASE("on a CPU rows that save less than a tenth of the time are not kept") {
  const PerSampleGrad f = linear_use(2, 128, 1536, 384);
  const PerSampleTimes t = f.times();
  const double otherwise = std::min(t.materialized_norm, t.ghost_norm) + t.term_sum;
  REQUIRE(t.kept < otherwise);
  REQUIRE(t.kept > 0.9 * otherwise);
  CHECK(f.materialize_if_cheaper(NormMethod::automatic, plenty).form() == std::string("outer"));
}

TEST_CASE("norms of a convolution need no patches where its window moves by one pixel") {
  // 128 to 128 channels on 8 x 8: with products of patches, materializing would be cheaper.
  const PerSampleGrad f = conv_use(2, 128, 128, 8, 3);
  CHECK(f.materialize_if_cheaper(NormMethod::automatic, plenty).form() == std::string("patches"));
  const auto kernels = [](const PerSampleGrad& use) {
    KernelProfile profile;
    dot(use, use);
    std::set<std::string> names;
    for (const KernelTotal& total : profile.totals()) names.insert(total.name);
    return names;
  };
  CHECK(kernels(f).count("conv_gram_norms") == 1);
  CHECK(kernels(f).count("unfold") == 0);
  Window by_two;
  by_two.stride[2] = 2;
  const PerSampleGrad strided = PerSampleGrad::patches(
      zeros({2, 512, 1, 1, 2}), zeros({2, 512, 1, 1, 3}), by_two, {512, 512, 1, 1});
  CHECK(kernels(strided).count("conv_gram_norms") == 0);
  CHECK(kernels(strided).count("unfold") == 1);
}

TEST_CASE("materialized gradients stay within the budget, and the method is obeyed") {
  const PerSampleGrad f = conv_use(2, 3, 16, 32, 3);
  CHECK(f.materialized_bytes() == 2 * 16 * 3 * 3 * 3 * sizeof(float));
  CHECK(f.materialize_if_cheaper(NormMethod::automatic, f.materialized_bytes() - 1).form() ==
        std::string("patches"));
  CHECK(f.materialize_if_cheaper(NormMethod::materialize, f.materialized_bytes() - 1).form() ==
        std::string("patches"));
  CHECK(f.materialize_if_cheaper(NormMethod::ghost, plenty).form() == std::string("patches"));
  CHECK(linear_use(2, 1, 64, 64).materialize_if_cheaper(NormMethod::materialize, plenty).form() ==
        std::string("dense"));
}

TEST_CASE("16-bit factors are kept if materialized gradients would take more memory") {
  const auto form = [](Dtype dtype, std::int64_t positions, NormMethod norm_method) {
    const Tensor factor = full({2, positions, 128}, 0.5, dtype);
    return std::string(PerSampleGrad::outer(factor, factor, {128, 128})
                           .materialize_if_cheaper(norm_method, plenty)
                           .form());
  };
  CHECK(form(Dtype::f32, 64, NormMethod::automatic) == "dense");
  CHECK(form(Dtype::bf16, 64, NormMethod::automatic) == "outer");
  CHECK(form(Dtype::bf16, 64, NormMethod::materialize) == "dense");
  CHECK(form(Dtype::bf16, 1024, NormMethod::automatic) == "dense");
}

TEST_CASE("a sum of single samples costs their materialization where no kernel avoids that") {
  CostModel costs{.gram_flops = 1e12, .rows_flops = 1e12, .sum_flops = 2e12, .bytes = 1e12};
  const auto times = [&](std::int64_t positions) {
    return detail::expected_times(linear_use(2, positions, 64, 32), costs);
  };
  CHECK(times(16).term_sum == times(16).sum);  // two samples are one term
  CHECK(times(17).term_sum == times(17).materialized_norm);
  costs.term_sum_flops = 4e12;
  CHECK(times(17).term_sum == Approx(times(17).sum / 2));
}

TEST_CASE("norms keep four digits where the sums of a linear layer cancel") {
  for (const auto& [positions, seeds] :
       {std::pair(64, 200), std::pair(256, 40), std::pair(1024, 8)}) {
    for (const double offset : offsets) {
      for (int seed = 0; seed < seeds; ++seed) {
        PublicRandom random(static_cast<std::uint64_t>(seed), 1);
        const Cancelling factors = cancelling(random, {2, positions, 8}, {2, positions, 4}, offset);
        INFO(positions << " positions, offset " << offset << ", seed " << seed);
        CHECK(norm_error(factors, [](const Tensor& b, const Tensor& a) {
                return PerSampleGrad::outer(b, a, {4, 8});
              }) < norm_accuracy);
      }
    }
  }
}

TEST_CASE("norms of ordinary data keep five digits by every method") {
  PublicRandom random(17);
  for (int round = 0; round < 60; ++round) {
    const std::int64_t t = std::int64_t{1} << draw(random, 0, 10), o = draw(random, 1, 40),
                       i = draw(random, 1, 40);
    const Cancelling factors{to_dtype(uniform_values(random, {3, t, o}), Dtype::f32),
                             to_dtype(uniform_values(random, {3, t, i}), Dtype::f32)};
    INFO(t << " positions, " << i << " to " << o);
    CHECK(norm_error(factors, [&](const Tensor& b, const Tensor& a) {
            return PerSampleGrad::outer(b, a, {o, i});
          }) < 1e-5);
  }
}

TEST_CASE("norms keep four digits where the sums of a convolution cancel", "[gate][gpu]") {
  Window window;
  window.kernel[1] = window.kernel[2] = 2;
  for_each_engine([&](Backend&) {
    for (const double offset : offsets) {
      for (std::uint64_t seed = 0; seed < 50; ++seed) {
        PublicRandom random(seed, 2);
        Cancelling factors = cancelling(random, {2, 1, 9, 9, 2}, {2, 1, 8, 8, 4}, offset);
        const Shape order{0, 4, 1, 2, 3};
        factors = {factors.b.permute(order), factors.a.permute(order)};
        INFO("offset " << offset << ", seed " << seed);
        CHECK(norm_error(factors, [&](const Tensor& b, const Tensor& a) {
                return PerSampleGrad::patches(b, a, window, {4, 2, 2, 2});
              }) < norm_accuracy);
      }
    }
  });
}

TEST_CASE("norms that are not recomputed on the host are marked where they cancel") {
  const float y[] = {1, -1 + 0x1p-20f, 1, 1}, x[] = {1, 1, 1, 1};  // of two samples
  const auto images = [](const float* v) {
    return Tensor::from(std::vector(v, v + 4), {2, 1, 1, 1, 2});
  };
  const auto factors = [](const float* v) {
    return Tensor::from(std::vector(v, v + 4), {2, 2, 1});
  };
  for (const PerSampleGrad& f :
       {PerSampleGrad::patches(images(y), images(x), Window{}, {1, 1, 1, 1, 1}),
        PerSampleGrad::outer(factors(y), factors(x), {1, 1})}) {
    INFO(f.form());
    const NormEstimate norms = norm_terms({f}, NormMethod::materialize);
    REQUIRE(norms.needs_f64.defined());
    CHECK(values(norms.needs_f64) == std::vector<double>{1, 0});
  }
}

TEST_CASE("a finite gradient of factors whose products overflow has a finite norm") {
  const Tensor b = Tensor::from({1e-25, 2e-25}, {1, 2, 1}, Dtype::f32);
  const Tensor a = Tensor::from({1e25, 1e25}, {1, 2, 1}, Dtype::f32);
  const PerSampleGrad f = PerSampleGrad::outer(b, a, {1, 1});
  for (const NormMethod norm_method :
       {NormMethod::automatic, NormMethod::ghost, NormMethod::materialize}) {
    CHECK(dot(f, f, norm_method).item() == Approx(9).epsilon(1e-5));
  }
}

TEST_CASE("a GPU multiplies 16-bit factors directly, with sums and materialized gradients in f32",
          "[gpu]") {
  Random random(41);
  for (const DeviceInfo& info : devices()) {
    if (info.device == cpu) continue;
    for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
      for (const std::int64_t positions : {1, 70}) {
        INFO(info.name << ' ' << name(dtype) << ' ' << positions);
        const Tensor b = random_tensor(random, {6, positions, 20}, {0, 1, 2}, dtype),
                     a = random_tensor(random, {6, positions, 30}, {0, 1, 2}, dtype);
        const Shape shape{20, 30};
        const auto exact =
            PerSampleGrad::outer(to_dtype(b, Dtype::f64), to_dtype(a, Dtype::f64), shape);
        const auto use = PerSampleGrad::outer(b.to(info.device), a.to(info.device), shape);
        const Tensor weights = random_tensor(random, {6}, Dtype::f64);
        const auto same = [](const Tensor& got, const Tensor& expected) {
          CHECK(got.dtype() == Dtype::f32);
          check_close(got, values(expected));
        };
        same(use.sum(), exact.sum());
        same(use.materialize(), exact.materialize());
        same(use.sum(weights), exact.sum(weights));
        same(use.sum(weights.to(info.device)), exact.sum(weights));
        for (const NormMethod norm_method : {NormMethod::ghost, NormMethod::materialize})
          same(to_dtype(dot(use, use, norm_method), Dtype::f32), dot(exact, exact, norm_method));
      }
    }
    const PerSampleGrad large =
        PerSampleGrad::outer(full({512, 8, 64}, 1, Dtype::bf16, info.device),
                             full({512, 8, 64}, 0.5, Dtype::bf16, info.device), {64, 64});
    Allocator& memory = allocator(info.device);
    const std::size_t before = memory.statistics().current;
    memory.reset_peak();
    const Tensor sum = large.sum();
    CHECK(memory.statistics().peak == before + sum.bytes());
    CHECK(sum.select(0, 3).select(0, 5).item() == 2048);
  }
}

TEST_CASE("16-bit factors of convolutions and tables give f32 sums and gradients on a GPU",
          "[gpu]") {
  Random random(43);
  const auto same = [](const Tensor& got, const Tensor& expected) {
    CHECK(got.dtype() == Dtype::f32);
    check_close(got, values(expected));
  };
  for (const DeviceInfo& info : devices()) {
    if (info.device == cpu) continue;
    for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
      INFO(info.name << ' ' << name(dtype));
      const Tensor dy = random_tensor(random, {6, 5, 1, 4, 4}, {0, 1, 2, 3, 4}, dtype),
                   x = random_tensor(random, {6, 3, 1, 6, 6}, {0, 1, 2, 3, 4}, dtype),
                   b = random_tensor(random, {6, 7, 8}, {0, 1, 2}, dtype);
      const Tensor ids = Tensor::from(std::vector<std::int64_t>(42, 3), {6, 7});
      const Tensor weights = random_tensor(random, {6}, Dtype::f64);
      const auto forms = [&](Dtype type, Device device) {
        const auto as = [&](const Tensor& t) { return to_dtype(t, type).to(device); };
        const Window window{.kernel = {1, 3, 3}};
        return std::array{PerSampleGrad::patches(as(dy), as(x), window, {5, 3, 3, 3}),
                          PerSampleGrad::onehot(ids.to(device), as(b), {9, 8})};
      };
      const auto exact = forms(Dtype::f64, cpu), uses = forms(dtype, info.device);
      for (std::size_t k = 0; k < uses.size(); ++k) {
        same(uses[k].sum(), exact[k].sum());
        same(uses[k].materialize(), exact[k].materialize());
        same(uses[k].sum(weights), exact[k].sum(weights));
        same(uses[k].sum(weights.to(info.device)), exact[k].sum(weights));
        same(to_dtype(dot(uses[k], uses[k], NormMethod::automatic), Dtype::f32),
             dot(exact[k], exact[k]));
      }
    }
  }
}

namespace {

// Uses of a linear layer and a convolution of random shapes, with one sample, in bf16.
std::array<PerSampleGrad, 2> narrow_uses(Random& random, Device device) {
  const auto draw = [&](const Shape& shape) {
    const Shape order = shape.rank() == 3 ? Shape{0, 1, 2} : Shape{0, 2, 3, 4, 1};
    return random_tensor(random, shape, order, Dtype::bf16).to(device);
  };
  const std::int64_t t = between(random, 1, 3), o = between(random, 1, 9),
                     i = between(random, 1, 9), side = between(random, 2, 4);
  const Window window{.kernel = {1, 2, 2}};
  return {PerSampleGrad::outer(draw({1, t, o}), draw({1, t, i}), {o, i}),
          PerSampleGrad::patches(draw({1, o, 1, side - 1, side - 1}), draw({1, i, 1, side, side}),
                                 window, {o, i, 2, 2})};
}

}  // namespace

TEST_CASE("a sum that a GPU weights in bf16 does not exceed its norm plus rounding", "[gpu]") {
  Random random(42);
  for (const DeviceInfo& info : devices()) {
    if (info.device == cpu) continue;
    INFO(info.name);
    for (int round = 0; round < 40; ++round) {
      for (const PerSampleGrad& use : narrow_uses(random, info.device)) {
        const NormEstimate terms = norm_terms({use});
        const double norm = std::sqrt(terms.squares.to(cpu).item()),
                     error = terms.error_bounds.to(cpu).item();
        for (const double scale : {1.0, 0x1p-90, 7.7e8}) {
          const double weight = scale / (norm + error);
          const auto sum = values(use.sum(full({1}, weight, Dtype::f64, info.device)).to(cpu));
          const auto exact = values(use.sum().to(cpu));
          double length = 0, lacking = 0;
          for (std::size_t k = 0; k < sum.size(); ++k) {
            length = std::hypot(length, sum[k] / scale);
            lacking = std::hypot(lacking, sum[k] / scale - exact[k] / (norm + error));
          }
          CHECK(length <= 1 + 0x1p-21);
          CHECK(lacking * (norm + error) <= error + norm * 0x1p-21);
        }
      }
    }
  }
}

TEST_CASE("a sum that a GPU weights in bf16 has values that a single bf16 could not hold",
          "[gpu]") {
  for (const DeviceInfo& info : devices()) {
    if (info.device == cpu) continue;
    const auto extreme =
        PerSampleGrad::outer(full({1, 1, 3}, 0x1.1p-30, Dtype::bf16, info.device),
                             full({1, 1, 3}, 0x1p127, Dtype::bf16, info.device), {9});
    const Tensor small = extreme.sum(full({1}, 0x1.1p-98, Dtype::f64, info.device)).to(cpu);
    CHECK(small.select(0, 0).item() == 0x1.21p-1);
  }
}

TEST_CASE("given squared norms of a factor's rows are used") {
  PublicRandom random(40);
  const Common c{.n = 3, .o = 4, .i = 6};
  const Tensor b = random_factor(random, c, {20, 4}), a = random_factor(random, c, {20, 6}),
               wide = to_dtype(b, Dtype::f64), squares = sum(mul(wide, wide), {2});
  const PerSampleGrad plain = PerSampleGrad::outer(b, a, {4, 6}),
                      known = PerSampleGrad::outer(b, a, {4, 6}, reshape(squares, {3, 20})),
                      longer =
                          PerSampleGrad::outer(b, a, {4, 6}, scale(reshape(squares, {3, 20}), 4));
  const auto check_times = [](double times, const PerSampleGrad& f, const PerSampleGrad& g) {
    NormErrorBounds x, y;
    squared_norm({f}, NormMethod::ghost, &x);
    squared_norm({g}, NormMethod::ghost, &y);
    REQUIRE(x.error_bounds.size() == y.error_bounds.size());
    for (std::size_t n = 0; n < x.error_bounds.size(); ++n) {
      CHECK(x.error_bounds[n] == Approx(times * y.error_bounds[n]).epsilon(1e-6));
      CHECK(x.term_norms[n] == Approx(times * y.term_norms[n]).epsilon(1e-6));
    }
  };
  check_times(1, known, plain);
  check_times(2, longer, plain);
  check_times(2, longer.slice(1, 3), plain.slice(1, 3));
}
