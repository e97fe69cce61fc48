#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

#include "core/random/box_muller.h"
#include "core/random/gaussian.h"
#include "core/random/secret_random.h"
#include "tests/support/catch.h"
#include "tests/support/threads.h"

using namespace sotto;

// Statistical bounds are checked for one fixed insecure seed each; the stated error rate is that of
// a correct generator over seeds.
namespace {

std::vector<double> draw(std::uint64_t seed, std::size_t n) {
  auto random = SecretRandom::insecure_seeded(seed);
  std::vector<double> z(n);
  fill_gaussian(random, z);
  return z;
}

double normal_cdf(double z) { return std::erfc(-z / std::numbers::sqrt2) / 2; }

// The pair by its definition, with the mathematical library in long double.
NormalPair slow_pair(std::uint64_t radius, std::uint64_t angle, int zeros) {
  const long double fraction = std::ldexp(static_cast<long double>(radius & 0xfffffffffffff), -52);
  const long double u = std::ldexp(1 + fraction, -(zeros + 1));
  const long double minus_log = zeros == 0 ? -std::log1p(u - 1) : -std::log(u);
  const long double place =
      std::ldexp(static_cast<long double>(angle >> 10 & 0xfffffffffffff) + 0.5L, -52) - 0.5L;
  const long double turn = std::numbers::pi_v<long double> / 2 * place;
  long double x = std::sqrt(2 * minus_log) * std::cos(turn);
  long double y = std::sqrt(2 * minus_log) * std::sin(turn);
  for (std::uint64_t quarters = angle >> 62; quarters > 0; --quarters) x = -std::exchange(y, x);
  return {static_cast<double>(x), static_cast<double>(y)};
}

void check_pair(std::uint64_t radius, std::uint64_t angle, int zeros) {
  const NormalPair y = normal_pair(radius, angle, zeros);
  const NormalPair expected = slow_pair(radius, angle, zeros);
  // Eight roundings of 2^-53, in the logarithm, the root, and the sine or cosine.
  constexpr double tolerance = 0x1p-50;
  CHECK(std::abs(y.cosine - expected.cosine) <= tolerance * std::abs(expected.cosine));
  CHECK(std::abs(y.sine - expected.sine) <= tolerance * std::abs(expected.sine));
}

}  // namespace

TEST_CASE("a pair is r cos a, r sin a to a few units in the last place") {
  auto random = SecretRandom::insecure_seeded(1);
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t radius = random.word();
    check_pair(radius, random.word(), i % 40);
  }
}

TEST_CASE("the extreme uniforms give finite values up to 27.24") {
  constexpr std::uint64_t ones = ~std::uint64_t{0};
  for (const std::uint64_t radius :
       {std::uint64_t{0}, ones, ones - 1, std::uint64_t{0x6a09e667f3bcd},
        std::uint64_t{0x6a09e667f3bce}}) {
    for (const std::uint64_t angle : {std::uint64_t{0}, ones, ones >> 1, ones >> 2, ones / 3}) {
      for (const int zeros : {0, 1, 21, 534}) check_pair(radius, angle, zeros);
    }
  }
  // The largest radius, slightly off the axis.
  const double largest = normal_pair(0, std::uint64_t{1} << 61, 534).cosine;
  CHECK(largest > 27.2);
  CHECK(largest < 27.24);
}

TEST_CASE("leading zeros are counted in 22 bits") {
  for (int zeros = 0; zeros < 22; ++zeros) {
    const std::uint64_t lowest = std::uint64_t{1} << (21 - zeros);
    CHECK(leading_zeros(lowest) == zeros);
    CHECK(leading_zeros(2 * lowest - 1) == zeros);
  }
  CHECK(box_muller::exponent_choice(~std::uint64_t{0}, 0) == 0x3ffc00);
  CHECK(box_muller::exponent_choice(0, ~std::uint64_t{0}) == 0x3ff);
}

TEST_CASE(
    "draws do not depend on the number of threads, and a shorter fill is the beginning of a longer "
    "one") {
  constexpr std::size_t n = 100'003;
  const auto with_threads = [](int count) {
    const Threads threads(count);
    return draw(2, n);
  };
  const auto expected = with_threads(1);
  for (const int threads : {2, 3, 7}) CHECK(with_threads(threads) == expected);
  const auto few = draw(2, 700);
  CHECK(std::equal(few.begin(), few.end(), expected.begin()));
  CHECK(draw(2, 0).empty());
}

TEST_CASE("the next fill begins where the blocks of the last one end") {
  auto random = SecretRandom::insecure_seeded(3);
  std::vector<double> first(513);
  std::vector<double> second(512);
  fill_gaussian(random, first);
  fill_gaussian(random, second);
  const auto all = draw(3, 1536);
  CHECK(std::equal(first.begin(), first.end(), all.begin()));
  CHECK(std::equal(second.begin(), second.end(), all.begin() + 1024));
}

// Five standard errors each: a false alarm in 300,000.
TEST_CASE("moments are those of the standard normal") {
  const auto z = draw(4, 2'000'000);
  double moment[7] = {};
  for (const double x : z) {
    double power = 1;
    for (int k = 1; k <= 6; ++k) moment[k] += (power *= x) / static_cast<double>(z.size());
  }
  // E z^k and E z^2k of the standard normal.
  const double mean[7] = {1, 0, 1, 0, 3, 0, 15};
  const double square[7] = {1, 1, 3, 15, 105, 945, 10395};
  for (int k = 1; k <= 6; ++k) {
    const double error = std::sqrt((square[k] - mean[k] * mean[k]) / static_cast<double>(z.size()));
    CHECK(std::abs(moment[k] - mean[k]) < 5 * error);
  }
}

// sqrt(n) times the Kolmogorov-Smirnov distance exceeds 2.6 with probability 2 exp(-2 2.6^2), one
// in 370,000.
TEST_CASE("the distribution is the standard normal") {
  auto z = draw(5, 1'000'000);
  std::sort(z.begin(), z.end());
  double distance = 0;
  const auto n = static_cast<double>(z.size());
  for (std::size_t i = 0; i < z.size(); ++i) {
    const double f = normal_cdf(z[i]);
    distance =
        std::max({distance, f - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - f});
  }
  CHECK(distance * std::sqrt(n) < 2.6);
}

// Counts beyond 3 and 4 are within five standard errors, a false alarm in 300,000 each; that none
// of 4 million exceeds 6.5 fails once in 3,000.
TEST_CASE("tails have their weight") {
  const auto z = draw(6, 4'000'000);
  for (const double bound : {3.0, 4.0}) {
    const double expected = 2 * normal_cdf(-bound) * static_cast<double>(z.size());
    const auto beyond =
        std::count_if(z.begin(), z.end(), [&](double x) { return std::abs(x) > bound; });
    CHECK(std::abs(static_cast<double>(beyond) - expected) < 5 * std::sqrt(expected));
  }
  CHECK(std::abs(*std::max_element(z.begin(), z.end())) < 6.5);
  CHECK(std::abs(*std::min_element(z.begin(), z.end())) < 6.5);
}

// Correlations of values and of squares, at distances inside a group, between its halves, and
// across groups and threads: 16 numbers, five standard errors each.
TEST_CASE("values at different places are uncorrelated") {
  const auto z = draw(7, 1'000'000);
  for (const std::size_t lag : {1, 2, 8, 255, 256, 257, 512, 500'000}) {
    const std::size_t n = z.size() - lag;
    double product = 0;
    double squares = 0;
    for (std::size_t i = 0; i < n; ++i) {
      product += z[i] * z[i + lag];
      squares += (z[i] * z[i] - 1) * (z[i + lag] * z[i + lag] - 1);
    }
    const double error = std::sqrt(static_cast<double>(n));
    CHECK(std::abs(product) < 5 * error);
    CHECK(std::abs(squares) < 5 * 2 * error);
  }
}

// Two of 2^23 pairs are expected to need further exponent bits for their radius. They must be the
// largest of all radii: each beyond sqrt(2 22 ln 2), and no other.
TEST_CASE("the rare uniforms below 2^-22 are refilled") {
  auto random = SecretRandom::insecure_seeded(9);
  auto words = SecretRandom::insecure_seeded(9);
  constexpr std::size_t n = 1 << 20;
  std::vector<double> z(n);
  std::vector<std::uint64_t> w(n);
  int refilled = 0;
  int wrong = 0;
  for (int round = 0; round < 16; ++round) {
    fill_gaussian(random, z);
    words.fill(std::span(w));
    for (std::size_t i = 0; i < n; i += i % 512 == 255 ? 257 : 1) {
      const bool rare = box_muller::exponent_choice(w[i], w[i + 256]) == 0;
      const double radius = std::hypot(z[i], z[i + 256]);
      wrong += rare == (radius * radius > 2 * 22 * std::numbers::ln2) ? 0 : 1;
      refilled += rare ? 1 : 0;
    }
  }
  CHECK(refilled > 0);
  CHECK(wrong == 0);
}
