#include "nn/init.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "nn/without_init.h"

namespace sotto::nn {

namespace {

// The Philox stream of initial values: ASCII "init".
constexpr std::uint64_t init_stream = 0x696e697400000000;

template <class Distribution>
Tensor drawn(const Shape& shape, const Distribution& draw) {
  if (const Tensor given = WithoutInit::of(shape); given.defined()) return given;
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (float& value : values) value = static_cast<float>(draw());
  return Tensor::from(values, shape);
}

// Uniform with mean zero and the given standard deviation.
Tensor uniform_of(const Shape& shape, double stddev, PublicRandom& random) {
  const double bound = std::numbers::sqrt3 * stddev;
  return random_uniform(shape, -bound, bound, random);
}

double kaiming_deviation(const Shape& weight, const Kaiming& options) {
  const Fans both = fans(weight);
  const std::int64_t fan = options.fan == Fan::in ? both.in : both.out;
  check(fan > 0, "kaiming: no fan in the weight {}", weight);
  return options.gain / std::sqrt(static_cast<double>(fan));
}

double xavier_deviation(const Shape& weight, double gain) {
  const Fans both = fans(weight);
  check(both.in + both.out > 0, "xavier: no fan in the weight {}", weight);
  return gain * std::sqrt(2 / static_cast<double>(both.in + both.out));
}

}  // namespace

PublicRandom& init_random() {
  thread_local PublicRandom random(0, init_stream);
  return random;
}

void manual_seed(std::uint64_t seed) { init_random() = PublicRandom(seed, init_stream); }

Fans fans(const Shape& weight) {
  check(weight.rank() >= 2, "fans: a weight of shape {} has no inputs and outputs", weight);
  std::int64_t kernel = 1;
  for (int axis = 2; axis < weight.rank(); ++axis) kernel *= weight[axis];
  return {.in = weight[1] * kernel, .out = weight[0] * kernel};
}

double gain(Nonlinearity nonlinearity, double slope) {
  switch (nonlinearity) {
    case Nonlinearity::linear:
    case Nonlinearity::sigmoid: return 1;
    case Nonlinearity::tanh: return 5.0 / 3;
    case Nonlinearity::relu: return std::numbers::sqrt2;
    case Nonlinearity::leaky_relu: return std::sqrt(2 / (1 + slope * slope));
    case Nonlinearity::selu: return 0.75;
  }
  fail("gain: no such nonlinearity");
}

Tensor random_uniform(const Shape& shape, double low, double high, PublicRandom& random) {
  check(low <= high, "random_uniform: low {} is above high {}", low, high);
  return drawn(shape, [&] { return low + (high - low) * random.uniform(); });
}

Tensor random_normal(const Shape& shape, double mean, double stddev, PublicRandom& random) {
  check(stddev >= 0, "random_normal: standard deviation {}", stddev);
  return drawn(shape, [&] { return mean + stddev * random.normal(); });
}

Tensor kaiming_uniform(const Shape& weight, const Kaiming& options, PublicRandom& random) {
  return uniform_of(weight, kaiming_deviation(weight, options), random);
}

Tensor kaiming_normal(const Shape& weight, const Kaiming& options, PublicRandom& random) {
  return random_normal(weight, 0, kaiming_deviation(weight, options), random);
}

Tensor xavier_uniform(const Shape& weight, double gain, PublicRandom& random) {
  return uniform_of(weight, xavier_deviation(weight, gain), random);
}

Tensor xavier_normal(const Shape& weight, double gain, PublicRandom& random) {
  return random_normal(weight, 0, xavier_deviation(weight, gain), random);
}

}  // namespace sotto::nn
