#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "core/random/philox.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

std::vector<std::uint32_t> words(const PhiloxBlock& block) { return {block.word, block.word + 4}; }

}  // namespace

// The published test vectors of Random123 for philox4x32 with ten rounds.
TEST_CASE("philox gives the published words") {
  CHECK(words(philox({0, 0}, 0)) ==
        std::vector<std::uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr std::uint64_t ones = ~std::uint64_t{0};
  CHECK(words(philox({ones, ones}, ones)) ==
        std::vector<std::uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(words(philox({0x299f31d0a4093822, 0x0370734413198a2e}, 0x85a308d3243f6a88)) ==
        std::vector<std::uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("uniform numbers are the upper bits of the words in order") {
  const PhiloxKey key{5, 7};
  for (std::uint64_t i = 0; i < 100; ++i) {
    const PhiloxBlock block = philox(key, i / 4);
    CHECK(uniform_float(key, i) == std::ldexp(static_cast<float>(block.word[i % 4] >> 8), -24));
    const std::uint64_t word = philox_word(key, i);
    CHECK(uniform(key, i) == std::ldexp(static_cast<double>(word >> 11), -53));
    const PhiloxBlock half = philox(key, i / 2);
    CHECK(static_cast<std::uint32_t>(word) == half.word[i % 2 * 2]);
    CHECK(word >> 32 == half.word[i % 2 * 2 + 1]);
  }
}

TEST_CASE("the largest words stay below one") {
  CHECK(unit_interval(~std::uint64_t{0}) < 1.0);
  CHECK(unit_interval(~std::uint32_t{0}) < 1.0f);
  CHECK(unit_interval(std::uint64_t{0}) == 0.0);
}

TEST_CASE("normal numbers are the cosine and the sine of one pair of uniforms") {
  const PhiloxKey key{5, 8};
  for (std::uint64_t i = 0; i < 100; i += 2) {
    const double radius = std::sqrt(-2 * std::log1p(-uniform(key, i)));
    const double angle = 2 * std::acos(-1.0) * uniform(key, i + 1);
    CHECK(normal(key, i) == Approx(radius * std::cos(angle)).epsilon(1e-12));
    CHECK(normal(key, i + 1) == Approx(radius * std::sin(angle)).epsilon(1e-12));
  }
}

// Each bound is five standard errors: a correct generator with another seed fails once in 300,000.
TEST_CASE("normal numbers have the moments of the standard normal") {
  const PhiloxKey key{11, 3};
  constexpr int n = 200'000;
  double moment[5] = {};
  double pairs = 0;
  for (int i = 0; i < n; ++i) {
    const double z = normal(key, static_cast<std::uint64_t>(i));
    for (int k = 1; k <= 4; ++k) moment[k] += std::pow(z, k) / n;
    if (i % 2 == 1) pairs += z * normal(key, static_cast<std::uint64_t>(i - 1)) / (n / 2);
  }
  const double error = 5 / std::sqrt(n);
  CHECK(std::abs(moment[1]) < error);
  CHECK(std::abs(moment[2] - 1) < error * std::sqrt(2));
  CHECK(std::abs(moment[3]) < error * std::sqrt(15));
  CHECK(std::abs(moment[4] - 3) < error * std::sqrt(96));
  CHECK(std::abs(pairs) < error * std::sqrt(2));
}

TEST_CASE("the sequence is a function of seed, stream and counter") {
  PublicRandom a(1, 2);
  CHECK(a.uniform() == uniform({1, 2}, 0));
  CHECK(a.normal() == normal({1, 2}, 2));
  CHECK(a.counter() == 4);
  PublicRandom b = a;
  CHECK(a.word() == b.word());
  a.set_counter(0);
  CHECK(a.word() == philox_word({1, 2}, 0));
  CHECK(PublicRandom(1, 3).word() != PublicRandom(1, 2).word());
  CHECK(PublicRandom(2, 2).word() != PublicRandom(1, 2).word());
}

// Chi-square with six degrees of freedom exceeds 33 once in 100,000.
TEST_CASE("below gives every integer equally often") {
  PublicRandom random(4);
  constexpr int n = 70'000;
  std::vector<int> count(7);
  for (int i = 0; i < n; ++i) ++count[static_cast<std::size_t>(random.below(7))];
  double chi = 0;
  for (const int c : count) chi += (c - n / 7.0) * (c - n / 7.0) / (n / 7.0);
  CHECK(chi < 33);
  CHECK(random.below(1) == 0);
  CHECK_THROWS_WITH(random.below(0), "below: no integers in [0, 0)");
}

// The remainder alone would give the lower half with probability 2/3: 6,667 of 10,000 draws instead
// of 5,000. A correct generator exceeds 5,250 once in 3 million.
TEST_CASE("below is unbiased where the range does not divide the words") {
  PublicRandom random(5);
  constexpr std::int64_t n = 3LL << 61;
  int low = 0;
  for (int i = 0; i < 10'000; ++i) low += random.below(n) < n / 2 ? 1 : 0;
  CHECK(low < 5250);
  CHECK(low > 4750);
}

// Chi-square with 23 degrees of freedom exceeds 61 once in 40,000.
TEST_CASE("shuffle gives every order equally often") {
  PublicRandom random(6);
  constexpr int n = 24'000;
  std::map<std::vector<std::int64_t>, int> count;
  for (int i = 0; i < n; ++i) {
    std::vector<std::int64_t> order{0, 1, 2, 3};
    random.shuffle(order);
    ++count[order];
  }
  REQUIRE(count.size() == 24);
  double chi = 0;
  for (const auto& [order, c] : count) chi += (c - n / 24.0) * (c - n / 24.0) / (n / 24.0);
  CHECK(chi < 61);
  std::vector<std::int64_t> none;
  random.shuffle(none);
  CHECK(none.empty());
}
