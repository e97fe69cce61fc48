// Statistical bounds are checked for one fixed insecure seed each; the stated error rate is that of
// a correct sampler over seeds.
// File tags: [optimised][simd]
#include "core/random/rounded_gaussian.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "core/random/secret_random.h"
#include "core/threads/parallel.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

std::vector<std::int64_t> draw(double stddev, std::uint64_t seed, std::size_t n) {
  auto random = SecretRandom::insecure_seeded(seed);
  std::vector<std::int64_t> draws(n);
  RoundedGaussian(stddev).fill(random, draws);
  return draws;
}

// P(X > x) of the standard normal.
double above(double x) { return std::erfc(x / std::sqrt(2.0)) / 2; }

// P(low <= n <= high) of the rounded normal, by its definition; tails are computed without
// cancellation.
double probability(double stddev, double low, double high) {
  const double a = (low - 0.5) / stddev, b = (high + 0.5) / stddev;
  return a > 0 ? above(a) - above(b) : above(-b) - above(-a);
}

// Chi-square of counts against expected counts, as a standard normal (Wilson and Hilferty 1931):
// above 5 once in 3 million, up to the approximation's error.
double chi_squared_deviate(const std::vector<double>& counts, const std::vector<double>& expected) {
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    sum += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
  }
  const double k = static_cast<double>(counts.size()) - 1;
  return (std::cbrt(sum / k) - (1 - 2 / (9 * k))) / std::sqrt(2 / (9 * k));
}

constexpr double once_in_three_million = 5;

// One cell per integer as long as 20 are expected, and the rest in the two outer cells.
double deviate_of_draws(double stddev, const std::vector<std::int64_t>& draws) {
  const auto n = static_cast<double>(draws.size());
  std::int64_t edge = 0;
  const auto each = [&](std::int64_t m) {
    return n * probability(stddev, static_cast<double>(m), static_cast<double>(m));
  };
  while (each(edge + 1) > 20) ++edge;
  std::vector<double> counts(static_cast<std::size_t>(2 * edge + 1)), expected;
  for (const std::int64_t x : draws) ++counts[std::size_t(std::clamp(x, -edge, edge) + edge)];
  for (std::int64_t m = -edge; m <= edge; ++m) expected.push_back(each(m));
  const double outer = n * above((static_cast<double>(edge) - 0.5) / stddev);
  expected.front() = expected.back() = outer;
  return chi_squared_deviate(counts, expected);
}

}  // namespace

TEST_CASE("a small stddev gives every integer with its probability") {
  for (const double stddev : {0.3, 0.7, 1.0, 3.0, 17.3, 31.9, 100.0}) {
    CHECK(deviate_of_draws(stddev, draw(stddev, 1, 1'000'000)) < once_in_three_million);
  }
}

// Five standard errors each: a false alarm in 300,000.
TEST_CASE("moments are the normal distribution's") {
  for (const double stddev : {0x1p30, 1.3 * 0x1p40, 1.99 * 0x1p54}) {
    const auto draws = draw(stddev, 2, 1'000'000);
    const auto n = static_cast<double>(draws.size());
    double moment[7] = {};
    for (const std::int64_t x : draws) {
      const double z = static_cast<double>(x) / stddev;
      double power = 1;
      for (int k = 1; k <= 6; ++k) moment[k] += (power *= z) / n;
    }
    const double mean[7] = {1, 0, 1, 0, 3, 0, 15};
    const double square[7] = {1, 1, 3, 15, 105, 945, 10395};
    for (int k = 1; k <= 6; ++k) {
      CHECK(std::abs(moment[k] - mean[k]) < 5 * std::sqrt((square[k] - mean[k] * mean[k]) / n));
    }
  }
}

// sqrt(n) times the Kolmogorov-Smirnov distance exceeds 2.6 with probability 2 exp(-2 2.6^2), one
// in 370,000.
TEST_CASE("a large stddev gives the normal distribution") {
  for (const double stddev : {0x1p20, 1.4 * 0x1p33, 1.99 * 0x1p50}) {
    auto draws = draw(stddev, 3, 500'000);
    std::sort(draws.begin(), draws.end());
    const auto n = static_cast<double>(draws.size());
    double distance = 0;
    for (std::size_t i = 0; i < draws.size(); ++i) {
      const double f = above(-static_cast<double>(draws[i]) / stddev);
      distance =
          std::max({distance, f - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - f});
    }
    CHECK(distance * std::sqrt(n) < 2.6);
  }
}

// Bits that the strips do not determine: the 256 values of a byte, a false alarm in three million
// each.
TEST_CASE("the low bits are uniform") {
  for (const int shift : {0, 8, 16}) {
    std::vector<double> counts(256);
    const auto draws = draw(1.7 * 0x1p30, 4, 1'000'000);
    for (const std::int64_t x : draws) ++counts[static_cast<std::size_t>(x >> shift & 255)];
    CHECK(chi_squared_deviate(counts, std::vector<double>(256, 1e6 / 256)) < once_in_three_million);
  }
}

// Words of the tail's boxes give samples beyond the strips, unless they are rejected and sampling
// restarts. One cell per half standard deviation, and one beyond 6, with 8 expected.
TEST_CASE("the tail has its weight, beyond 6 deviations too") {
  const double stddev = 1.5 * 0x1p30;
  const RoundedGaussian gaussian(stddev);
  const ExactNormalSampler& boxes = gaussian.boxes();
  const double begin = std::ldexp(boxes.strips(), gaussian.strip_exponent()) / stddev;
  auto random = SecretRandom::insecure_seeded(5);
  const auto more = [&] { return random.word(); };
  const double edges[] = {begin, 3.75, 4, 4.5, 5, 5.5, 6, 100};
  std::vector<double> counts(7), expected;
  double all = 0;
  for (int i = 0; i < 4'000'000; ++i) {
    const int box = boxes.first_tail_box() + i % boxes.tail_boxes();
    const std::uint64_t word = static_cast<std::uint64_t>(box) << 52 | random.word() >> 12;
    const double z = std::abs(static_cast<double>(gaussian.draw(word, more))) / stddev;
    if (z <= begin) continue;
    ++all;
    ++counts[static_cast<std::size_t>(std::upper_bound(edges, edges + 7, z) - edges - 1)];
  }
  CHECK(all > 1'000'000);
  for (int i = 0; i < 7; ++i) {
    expected.push_back(all * (above(edges[i]) - above(edges[i + 1])) / above(begin));
  }
  CHECK(chi_squared_deviate(counts, expected) < once_in_three_million);
  CHECK(counts.back() > 0);
}

// Correlations of values and of squares, at distances inside a group and across groups and threads:
// 14 numbers, five standard errors each.
TEST_CASE("rounded values at different places are uncorrelated") {
  const double stddev = 0x1p30;
  const auto draws = draw(stddev, 6, 1'000'000);
  std::vector<double> z;
  for (const std::int64_t x : draws) z.push_back(static_cast<double>(x) / stddev);
  for (const std::size_t lag : {1, 2, 8, 512, 1023, 1024, 500'000}) {
    const std::size_t n = z.size() - lag;
    double product = 0, squares = 0;
    for (std::size_t i = 0; i < n; ++i) {
      product += z[i] * z[i + lag];
      squares += (z[i] * z[i] - 1) * (z[i + lag] * z[i + lag] - 1);
    }
    const double error = std::sqrt(static_cast<double>(n));
    CHECK(std::abs(product) < 5 * error);
    CHECK(std::abs(squares) < 5 * 2 * error);
  }
}

TEST_CASE("a word with the other sign gives the opposite draw") {
  auto words = SecretRandom::insecure_seeded(7);
  for (const double stddev : {0.4, 5.0, 0x1p35}) {
    const RoundedGaussian gaussian(stddev);
    for (std::uint64_t i = 0; i < 20'000; ++i) {
      const std::uint64_t word = words.word();
      auto a = SecretRandom::insecure_seeded(i), b = SecretRandom::insecure_seeded(i);
      const std::int64_t plus = gaussian.draw(word, [&] { return a.word(); });
      const std::int64_t minus =
          gaussian.draw(word ^ std::uint64_t{1} << 51, [&] { return b.word(); });
      if (plus != -minus) FAIL(word);
    }
  }
}

// Reference values from boxes in 200-bit arithmetic.
TEST_CASE("known words give known draws") {
  const RoundedGaussian wide(0x1p30), narrow(1.5 * 0x1p20), small(3);
  CHECK(wide.decided(0x0123456789abcdef) == 27440069);
  CHECK(wide.decided(0x5fedcba987654321) == -585487556);
  CHECK(wide.decided(0xa0f0f0f0f0f0f0f0) == 947419256);
  CHECK(wide.decided(0x1248124812481248) == -67707913);
  CHECK(narrow.decided(0x0123456789abcdef) == 26797);
  CHECK(narrow.decided(0x5fedcba987654321) == -833909);
  CHECK(narrow.decided(0x1248124812481248) == -131657);
  CHECK(small.decided(0x5fedcba987654321) == -2);
}

// A group of 1024 samples has 128 blocks, and its further words come from a separate keystream.
TEST_CASE("draws are those of the keystream's words, none of which is used twice") {
  std::size_t max_used = 0;
  for (const double stddev : {0.3, 5.0, 1.1 * 0x1p30, 1.99 * 0x1p54}) {
    const RoundedGaussian gaussian(stddev);
    const auto draws = draw(stddev, 8, 20'003);
    ChaChaStream stream = SecretRandom::insecure_seeded(8).reserve(2'501);
    std::vector<std::uint64_t> words(draws.size()), others(1024);
    chacha20_keystream(stream, words.data(), words.size() * 8);
    std::size_t used = 0, wrong = 0;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (i % 1024 == 0) {
        const ChaChaStream own{stream.key, std::uint64_t{1} << 63 | i / 8, 0};
        chacha20_keystream(own, others.data(), others.size() * 8);
        used = 0;
      }
      wrong += gaussian.draw(words[i], [&] { return others.at(used++); }) == draws[i] ? 0 : 1;
      max_used = std::max(max_used, used);
    }
    CHECK(wrong == 0);
  }
  CHECK(max_used > 128);  // more than the sampler takes from the keystream at a time
}

TEST_CASE(
    "rounded draws do not depend on the number of threads, and a shorter fill begins a longer "
    "one") {
  constexpr std::size_t n = 100'003;
  const int before = thread_count();
  set_thread_count(1);
  const auto expected = draw(1e9, 9, n);
  for (const int threads : {2, 3, 7}) {
    set_thread_count(threads);
    CHECK(draw(1e9, 9, n) == expected);
  }
  set_thread_count(before);
  const auto few = draw(1e9, 9, 1'700);
  CHECK(std::equal(few.begin(), few.end(), expected.begin()));
  CHECK(draw(1e9, 9, 0).empty());
}

TEST_CASE("the next draw begins with the next block, and repeats nothing") {
  auto random = SecretRandom::insecure_seeded(10);
  const RoundedGaussian gaussian(1e9);
  std::vector<std::int64_t> first(13), second(1024);
  gaussian.fill(random, first);
  gaussian.fill(random, second);
  auto words = SecretRandom::insecure_seeded(10);
  std::vector<std::uint64_t> keystream(16 + 1024);
  words.fill(std::span(keystream));
  int wrong = 0;
  for (std::size_t i = 0; i < second.size(); ++i) {
    const std::uint64_t word = keystream[16 + i];
    if (!gaussian.boxes().certain(word)) continue;
    wrong += gaussian.decided(word) == second[i] ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("the smallest and the largest stddev are sampled, and others refused") {
  const std::vector<double> refused{0, -1, std::nan(""), HUGE_VAL, 0x1.fffp-9, 0x1p55};
  for (const double stddev : refused) {
    CHECK_THROWS_AS(RoundedGaussian(stddev), std::invalid_argument);
  }
  CHECK(draw(0x1p-8, 11, 10'000) == std::vector<std::int64_t>(10'000, 0));
  const double largest = std::nextafter(0x1p55, 0);
  auto draws = draw(largest, 12, 200'000);
  for (std::int64_t& x : draws) x = (x + (std::int64_t{1} << 51)) >> 52;
  CHECK(deviate_of_draws(largest * 0x1p-52, draws) < once_in_three_million);
}
