// The integer stream compared with the dense inverse, and the basis of its privacy: the number
// subtracted from fresh noise is within 3/4 of the factor's.
#include "dp/noise/correlated/noise_stream.h"

#include <cmath>

#include "core/random/philox.h"
#include "tests/support/catch.h"
#include "tests/support/noise_strategies.h"

namespace sotto {
namespace {

using Numbers = std::vector<std::int64_t>;

Numbers random_numbers(std::size_t count, double stddev, std::uint64_t seed) {
  PublicRandom random(seed);
  Numbers values(count);
  for (auto& value : values) value = std::llrint(stddev * random.normal());
  return values;
}

// y[t] for z[t], one vector of elements for each step.
std::vector<Numbers> streamed(CorrelatedNoiseStream& stream, const std::vector<Numbers>& z) {
  std::vector<Numbers> y;
  for (Numbers now : z) {
    stream.correlate(0, now);
    stream.advance();
    y.push_back(std::move(now));
  }
  return y;
}

std::vector<Numbers> noise_for(std::int64_t steps, std::size_t elements, double stddev) {
  std::vector<Numbers> z;
  for (std::int64_t t = 0; t < steps; ++t) {
    z.push_back(random_numbers(elements, stddev, static_cast<std::uint64_t>(100 + t)));
  }
  return z;
}

TEST_CASE("a stream is the product with the dense inverse to 1e-12") {
  constexpr std::int64_t steps = 70;
  constexpr double stddev = 0x1p48;
  for (const StrategyMatrix& strategy : strategies(steps)) {
    const auto z = noise_for(steps, 3, stddev);
    CorrelatedNoiseStream stream(strategy, 3);
    const auto y = streamed(stream, z);
    const Eigen::MatrixXd inverse = dense(strategy).inverse();
    for (std::size_t e = 0; e < 3; ++e) {
      Eigen::VectorXd column(steps);
      for (std::int64_t t = 0; t < steps; ++t)
        column[t] = static_cast<double>(z[static_cast<std::size_t>(t)][e]);
      const Eigen::VectorXd expected = inverse * column;
      for (std::int64_t t = 0; t < steps; ++t) {
        const auto value = static_cast<double>(y[static_cast<std::size_t>(t)][e]);
        CHECK(std::abs(value - expected[t]) < 1e-12 * stddev);
      }
    }
  }
}

TEST_CASE("the number subtracted from fresh noise is within 3/4 of the factor's") {
  constexpr std::int64_t steps = 150;
  for (const StrategyMatrix& strategy : strategies(steps)) {
    const auto z = noise_for(steps, 40, 1000);
    CorrelatedNoiseStream stream(strategy, 40);
    const auto y = streamed(stream, z);
    double worst = 0;
    for (std::size_t t = 0; t < y.size(); ++t) {
      for (std::size_t e = 0; e < 40; ++e) {
        double product = 0;  // exact to 2^-25
        for (std::size_t s = 0; s <= t; ++s) {
          product +=
              strategy.entry(std::int64_t(t), std::int64_t(s)) * static_cast<double>(y[s][e]);
        }
        worst = std::max(worst, std::abs(product - static_cast<double>(z[t][e])));
      }
    }
    const bool tree = std::holds_alternative<TreeFactor>(strategy.factor());
    const bool banded = std::holds_alternative<BandedToeplitz>(strategy.factor());
    CHECK(worst <= (tree ? 0 : banded ? 0.5 : 0.75) + 0x1p-20);
    CHECK((tree || strategy.bands() == 1 || worst > 0.4));  // the bound is nearly attained
  }
}

TEST_CASE("parts of the elements in any order are the whole") {
  constexpr std::int64_t steps = 9;
  constexpr std::size_t elements = 1000;
  for (const StrategyMatrix& strategy : strategies(steps)) {
    const auto z = noise_for(steps, elements, 1e6);
    CorrelatedNoiseStream whole(strategy, elements), parts(strategy, elements);
    const auto expected = streamed(whole, z);
    for (std::size_t t = 0; t < z.size(); ++t) {
      Numbers now = z[t];
      const std::span all(now);
      parts.correlate(700, all.subspan(700));
      parts.correlate(0, all.first(1));
      parts.correlate(1, all.subspan(1, 699));
      parts.advance();
      CHECK(now == expected[t]);
    }
  }
}

TEST_CASE("a stream continues from its memory") {
  constexpr std::int64_t steps = 12;
  for (const StrategyMatrix& strategy : strategies(steps)) {
    const auto z = noise_for(steps, 5, 1e6);
    CorrelatedNoiseStream first(strategy, 5), expected(strategy, 5), second(strategy, 5);
    const auto all = streamed(expected, z);
    streamed(first, {z.begin(), z.begin() + 7});
    second.resume(7, first.memory());
    CHECK(streamed(second, {z.begin() + 7, z.end()}) ==
          std::vector<Numbers>(all.begin() + 7, all.end()));
    Numbers more(5);
    CHECK_THROWS_AS(second.correlate(0, more), std::invalid_argument);
  }
}

TEST_CASE("the spread is that of noise and memory") {
  constexpr std::int64_t steps = 50;
  constexpr std::size_t elements = 4'000;
  constexpr double stddev = 1e6;
  for (const StrategyMatrix& strategy : strategies(steps)) {
    CorrelatedNoiseStream stream(strategy, elements);
    double largest = 0;
    for (const Numbers& z : noise_for(steps, elements, stddev)) {
      Numbers now = z;
      stream.correlate(0, now);
      stream.advance();
      double square = 0;
      for (const auto v : now) square += static_cast<double>(v) * static_cast<double>(v);
      largest = std::max(largest, square);
      for (std::int64_t slot = 0; slot < stream.memory().size(0); ++slot) {
        square = 0;
        for (const auto v : stream.memory().select(0, slot).to_vector<std::int64_t>())
          square += static_cast<double>(v) * static_cast<double>(v);
        largest = std::max(largest, square);
      }
    }
    // An estimate's standard error is 1.1 % (chi-squared of 4,000), and the largest of a few
    // hundred is within 7 % except with probability 1e-6.
    CHECK(std::sqrt(largest / elements) / stddev == Approx(stream.spread()).epsilon(0.07));
  }
}

TEST_CASE("arguments that do not fit a stream are errors") {
  CorrelatedNoiseStream stream(StrategyMatrix(BandedToeplitz{{1, 0.5}}, 4), 3);
  Numbers noise(3);
  CHECK_THROWS_AS(stream.correlate(1, noise), std::invalid_argument);
  CHECK_THROWS_AS(stream.correlate(-1, noise), std::invalid_argument);
  const Tensor memory = Tensor::from(noise, {1, 3});
  CHECK_THROWS_AS(stream.resume(5, memory), std::invalid_argument);
  CHECK_THROWS_AS(stream.resume(-1, memory), std::invalid_argument);
  CHECK_THROWS_AS(stream.resume(1, Tensor::from(noise, {3, 1})), std::invalid_argument);
  CHECK_THROWS_AS(stream.resume(1, Tensor()), std::invalid_argument);
  CHECK_THROWS_AS(stream.resume(1, Tensor::from({0, 0, 0}, {1, 3}, Dtype::f64)),
                  std::invalid_argument);
  CHECK_NOTHROW(stream.resume(4, memory));
}

}  // namespace
}  // namespace sotto
