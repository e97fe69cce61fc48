#include "nn/init.h"

#include <algorithm>
#include <cmath>

#include "core/random/philox.h"
#include "nn/layers.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;
using nn::Fan;
using nn::Nonlinearity;

namespace {

struct Moments {
  double mean = 0;
  double stddev = 0;
  double largest = 0;
  double kurtosis = 0;
};

Moments moments(const Tensor& x) {
  const std::vector<float> values = x.to_vector<float>();
  const auto n = static_cast<double>(values.size());
  Moments m;
  for (const double v : values) m.mean += v / n;
  double fourth = 0;
  for (const double v : values) {
    m.stddev += (v - m.mean) * (v - m.mean) / n;
    fourth += std::pow(v - m.mean, 4) / n;
    m.largest = std::max(m.largest, std::abs(v));
  }
  m.kurtosis = fourth / (m.stddev * m.stddev);
  m.stddev = std::sqrt(m.stddev);
  return m;
}

// Mean 0 and the given standard deviation, each within five standard errors of n = 120,000 draws. A
// normal's sample standard deviation has relative error 1 / sqrt(2 n), a uniform's less; one
// correct check fails with probability below 6e-7.
void check_moments(const Tensor& x, double stddev) {
  const auto n = static_cast<double>(x.numel());
  const Moments m = moments(x);
  CHECK(std::abs(m.mean) < 5 * stddev / std::sqrt(n));
  CHECK(std::abs(m.stddev / stddev - 1) < 5 / std::sqrt(2 * n));
}

const Shape weight{300, 16, 5, 5};  // fan in 400, fan out 7500
const double uniform_kurtosis = 1.8;
const double normal_kurtosis = 3;

}  // namespace

TEST_CASE("fans count inputs and outputs times the kernel") {
  CHECK(nn::fans(weight).in == 400);
  CHECK(nn::fans(weight).out == 7500);
  CHECK(nn::fans({3, 2}).in == 2);
  CHECK(throws([] { nn::fans({3}); }, "fans: a weight of shape (3)"));
}

TEST_CASE("gains are the customary ones") {
  CHECK(nn::gain(Nonlinearity::linear) == 1);
  CHECK(nn::gain(Nonlinearity::sigmoid) == 1);
  CHECK(nn::gain(Nonlinearity::tanh) == Approx(5.0 / 3));
  CHECK(nn::gain(Nonlinearity::relu) == Approx(std::sqrt(2)));
  CHECK(nn::gain(Nonlinearity::leaky_relu, std::sqrt(5)) == Approx(1 / std::sqrt(3)));
  CHECK(nn::gain(Nonlinearity::selu) == 0.75);
}

TEST_CASE("Kaiming and Xavier draws have their standard deviations") {
  nn::manual_seed(1);
  check_moments(nn::kaiming_normal(weight), std::sqrt(2.0 / 400));
  check_moments(nn::kaiming_uniform(weight), std::sqrt(2.0 / 400));
  check_moments(nn::kaiming_normal(weight, {.fan = Fan::out, .gain = 1}), std::sqrt(1.0 / 7500));
  check_moments(nn::xavier_normal(weight), std::sqrt(2.0 / 7900));
  check_moments(nn::xavier_uniform(weight, 3), 3 * std::sqrt(2.0 / 7900));
}

// The kurtosis of n = 120,000 normal draws has standard error sqrt(24 / n) = 0.014, that of uniform
// ones less than 0.004; a correct check fails with probability below 6e-7.
TEST_CASE("uniform draws fill their interval and normal ones have tails") {
  nn::manual_seed(2);
  const double bound = std::sqrt(6.0 / 400);
  const Moments uniform = moments(nn::kaiming_uniform(weight));
  CHECK(uniform.largest <= bound);
  CHECK(uniform.largest > 0.999 * bound);
  CHECK(std::abs(uniform.kurtosis - uniform_kurtosis) < 0.02);
  CHECK(std::abs(moments(nn::kaiming_normal(weight)).kurtosis - normal_kurtosis) < 0.071);
}

TEST_CASE("linear and convolution layers start uniform in one over the root of the fan in") {
  nn::manual_seed(3);
  nn::Linear linear(400, 300);
  check_moments(linear.weight->value, 0.05 / std::sqrt(3));
  CHECK(moments(linear.weight->value).largest <= 0.05);
  CHECK(moments(linear.bias->value).largest <= 0.05);
  CHECK(moments(linear.bias->value).largest > 0.04);
  nn::Conv2d conv(64, 75, 5, {.groups = 1});
  check_moments(conv.weight->value, 0.025 / std::sqrt(3));
  CHECK(moments(conv.bias->value).largest <= 0.025);
  nn::Conv2d grouped(4, 4, 5, {.groups = 4});
  CHECK(moments(grouped.weight->value).largest > 0.15);
  CHECK(moments(grouped.weight->value).largest <= 0.2);
}

TEST_CASE("the same seed gives the same model and another seed another one") {
  const auto model = [](std::uint64_t seed) {
    nn::manual_seed(seed);
    nn::Sequential layers{nn::Conv2d(1, 2, 3), nn::Linear(2, 3)};
    std::vector<float> all;
    for (const Parameter* parameter : layers.parameters()) {
      for (const float v : parameter->value.to_vector<float>()) all.push_back(v);
    }
    return all;
  };
  CHECK(model(5) == model(5));
  CHECK(model(5) != model(6));
  std::vector<float> sorted = model(5);
  std::sort(sorted.begin(), sorted.end());
  CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
}

TEST_CASE("a generator can be given") {
  PublicRandom a(9);
  PublicRandom b(9);
  CHECK(nn::random_normal({8}, 1, 2, a).to_vector<float>() ==
        nn::random_normal({8}, 1, 2, b).to_vector<float>());
  CHECK(a.counter() == b.counter());
  CHECK(throws([] { nn::random_normal({8}, 0, -1); }, "standard deviation -1"));
  CHECK(throws([] { nn::random_uniform({8}, 1, 0); }, "low 1 is above high 0"));
}
