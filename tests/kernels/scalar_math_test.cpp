// The accuracy of the float functions of kernels/functors/scalar_math.h over their whole range,
// compared with double.
// File tags: [optimised]
#include <bit>

#include "core/threads/simd_dispatch.h"
#include "kernels/functors/functors.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

// The distance in units in the last place of `expected` as a float; subnormal results count in
// units of the smallest normal number.
double ulps(float found, double expected) {
  if (static_cast<double>(found) == expected) return 0;
  const double size = std::max(std::abs(expected), 0x1p-126);
  return std::abs(static_cast<double>(found) - expected) / std::ldexp(1.0, std::ilogb(size) - 23);
}

// The largest distance over every 1009th float between low and high, compiled with and without
// fused multiply-adds.
template <class F, class G>
double worst(float low, float high, F&& f, G&& exact) {
  double max = 0;
  constexpr std::int32_t stride = 1009;
  for (std::int64_t bits = 0; bits <= 0x7f7fffff; bits += stride) {
    for (const float sign : {1.0f, -1.0f}) {
      const float x = sign * std::bit_cast<float>(static_cast<std::int32_t>(bits));
      if (x < low || x > high) continue;
      const double expected = exact(static_cast<double>(x));
      float fused;
      simd_dispatch([&] { fused = f(x); });
      for (const float found : {f(x), fused}) {
        const double error = ulps(found, expected);
        if (std::isnan(error)) return error;
        max = std::max(max, error);
      }
    }
  }
  return max;
}

constexpr float largest = 3.4e38f;
constexpr float infinity = HUGE_VALF;
const float nan_value = std::nanf("");

}  // namespace

TEST_CASE("exp is within two units in the last place where its result is a normal float") {
  const auto f = [](float x) { return math::exp(x); };
  const auto exact = [](double x) { return std::exp(x); };
  // The logarithms of the smallest normal float and of the largest float.
  CHECK(worst(-87.3365402f, 88.7228317f, f, exact) <= 2);
  CHECK(math::exp(88.7228394f) == infinity);
  CHECK(math::exp(largest) == infinity);
  CHECK(math::exp(-87.34f) == 0);
  CHECK(math::exp(-largest) == 0);
  CHECK(math::exp(infinity) == infinity);
  CHECK(math::exp(-infinity) == 0);
  CHECK(math::exp(0.0f) == 1);
  CHECK(std::isnan(math::exp(nan_value)));
}

TEST_CASE("tanh is within four units in the last place everywhere") {
  CHECK(worst(
            -largest, largest, [](float x) { return math::tanh(x); },
            [](double x) { return std::tanh(x); }) <= 4);
  CHECK(math::tanh(infinity) == 1);
  CHECK(math::tanh(-infinity) == -1);
  CHECK(std::isnan(math::tanh(nan_value)));
}

TEST_CASE(
    "the logistic function is within four units in the last place where it is a normal float") {
  const auto f = [](float x) { return math::sigmoid(x); };
  const auto exact = [](double x) { return 1 / (1 + std::exp(-x)); };
  CHECK(worst(-87.3365402f, largest, f, exact) <= 4);
  CHECK(math::sigmoid(-infinity) == 0);
  CHECK(math::sigmoid(infinity) == 1);
  CHECK(std::isnan(math::sigmoid(nan_value)));
}

TEST_CASE("softplus is within three units in the last place where it is a normal float") {
  const auto f = [](float x) { return math::softplus(x); };
  const auto exact = [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); };
  CHECK(worst(-87.3365402f, largest, f, exact) <= 3);
  CHECK(worst(
            0, 1, [](float t) { return math::log1p_of_part(t); },
            [](double t) { return std::log1p(t); }) <= 2);
  CHECK(f(-infinity) == 0);
  CHECK(f(infinity) == infinity);
  CHECK(std::isnan(f(nan_value)));
}

TEST_CASE("erf is within two units in the last place everywhere") {
  CHECK(worst(
            -largest, largest, [](float x) { return math::erf(x); },
            [](double x) { return std::erf(x); }) <= 2);
  CHECK(math::erf(infinity) == 1);
  CHECK(math::erf(-infinity) == -1);
  CHECK(std::signbit(math::erf(-0.0f)));
}

TEST_CASE(
    "the normal distribution is within six units in the last place where it is a normal float",
    "[gate]") {
  const auto below = [](float x) { return math::normal(x).below; };
  const auto bell = [](float x) { return math::normal(x).bell; };
  // There, the lower tail's probability is the smallest normal float.
  CHECK(worst(-12.949f, largest, below,
              [](double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }) <= 6);
  CHECK(worst(-13.21f, 13.21f, bell, [](double x) { return std::exp(-x * x / 2); }) <= 2);
  CHECK(below(-largest) == 0);
  CHECK(below(-infinity) == 0);
  CHECK(below(infinity) == 1);
  CHECK(bell(infinity) == 0);
  // The payload of this NaN is in bits that are masked off.
  const float low_nan = std::bit_cast<float>(0x7f800001);
  CHECK(std::isnan(below(low_nan)));
}

TEST_CASE("every elementwise function propagates NaN, in float and in double") {
  const auto check_unary = [](auto f) {
    CHECK(std::isnan(f(nan_value)));
    CHECK(std::isnan(f(std::nan(""))));
  };
  const auto walk = [&]<class... F>(FunctorList<F...>) {
    const auto one = [&]<class G>(std::type_identity<G>) {
      INFO(G::name);
      if constexpr (requires { G::sample; })
        check_unary(configured<G>(G::sample));
      else
        check_unary(configured<G>({}));
    };
    (one(std::type_identity<F>{}), ...);
  };
  walk(UnaryFunctors{});
  const auto walk_pairs = [&]<class... F>(FunctorList<F...>) {
    const auto one = [&](const char* name, auto f) {
      INFO(name);
      CHECK(std::isnan(f(nan_value, 1.0f)));
      CHECK(std::isnan(f(1.0f, nan_value)));
    };
    (one(F::name, F{}), ...);
  };
  walk_pairs(BinaryFunctors{});
}

TEST_CASE("derivatives are finite for large and small finite arguments") {
  const auto walk = [&]<class... F>(FunctorList<F...>) {
    const auto one = [&]<class G>(std::type_identity<G>) {
      Constants constants{};
      if constexpr (requires { G::sample; }) constants = G::sample;
      const G f = configured<G>(constants);
      for (const float x :
           {-50.0f, -20.0f, -1e-3f, 1e-3f, 20.0f, 50.0f, 1e4f, -1e4f, 1e18f, -1e18f}) {
        const float y = f(x);
        if (!std::isfinite(y)) continue;
        INFO(G::name << " at " << x);
        CHECK(std::isfinite(f.grad(x, y)));
      }
    };
    (one(std::type_identity<F>{}), ...);
  };
  walk(UnaryFunctors{});
}
