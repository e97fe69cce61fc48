// Random subsets have their stated probabilities, by either algorithm: statistics with fixed seeds.
// Each check below fails for a correct sampler with probability under 1e-6.
#include "dp/sampling/subset.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <vector>

#include "core/random/secret_random.h"
#include "tests/support/catch.h"
#include "tests/support/statistics.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

using SubsetMethod = std::vector<std::int64_t> (IndependentSubset::*)(std::int64_t, SecretRandom&);
constexpr SubsetMethod methods[] = {&IndependentSubset::sample_dense,
                                    &IndependentSubset::sample_sparse};

// A bit for each unit.
std::size_t mask(const std::vector<std::int64_t>& units) {
  std::size_t mask = 0;
  for (const std::int64_t unit : units) mask |= std::size_t{1} << unit;
  return mask;
}

// P[Binomial(n, q) = k] for k = 0 .. n.
std::vector<double> binomial(std::int64_t n, double q) {
  std::vector<double> p;
  const auto all = static_cast<double>(n);
  for (double k = 0; k <= all; ++k)
    p.push_back(std::exp(std::lgamma(all + 1) - std::lgamma(k + 1) - std::lgamma(all - k + 1) +
                         k * std::log(q) + (all - k) * std::log1p(-q)));
  return p;
}

TEST_CASE("every subset has the probability of independent units, by either algorithm") {
  constexpr std::int64_t n = 5, draws = 60'000;
  // Blocks of 1, 3, 7 and 31 places, which end within the units, at their end and beyond it.
  for (const double rate : {0.3, 0.249, 0.2, 0.1, 0.03}) {
    for (const SubsetMethod method : methods) {
      IndependentSubset subset("test", rate);
      SecretRandom random = SecretRandom::insecure_seeded(1);
      std::vector<std::int64_t> counts(1 << n);
      for (int i = 0; i < draws; ++i) ++counts[mask((subset.*method)(n, random))];
      std::vector<double> expected;
      for (unsigned m = 0; m < counts.size(); ++m)
        expected.push_back(draws * std::pow(rate, std::popcount(m)) *
                           std::pow(1 - rate, n - std::popcount(m)));
      CHECK(fits(counts, expected));
    }
  }
}

void check_sizes_and_places(std::int64_t n, double rate, int draws, SubsetMethod method) {
  constexpr std::int64_t slices = 25;
  IndependentSubset subset("test", rate);
  SecretRandom random = SecretRandom::insecure_seeded(2);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(n) + 1), places(slices);
  for (int i = 0; i < draws; ++i) {
    const std::vector<std::int64_t> units = (subset.*method)(n, random);
    CHECK(std::is_sorted(units.begin(), units.end()));
    ++sizes[units.size()];
    for (const std::int64_t unit : units) ++places[static_cast<std::size_t>(unit * slices / n)];
  }
  std::vector<double> expected = binomial(n, rate);
  for (double& p : expected) p *= draws;
  CHECK(fits(sizes, expected));
  expected.clear();
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    const std::int64_t units =
        ((slice + 1) * n + slices - 1) / slices - (slice * n + slices - 1) / slices;
    expected.push_back(draws * rate * static_cast<double>(units));
  }
  CHECK(fits(places, expected));
}

TEST_CASE("sizes are binomial and places uniform, by either algorithm") {
  // One whole block, at the rate of its places; some blocks; many.
  check_sizes_and_places(127, 0x1p-7, 400'000, &IndependentSubset::sample_sparse);
  check_sizes_and_places(300, 0.006, 100'000, &IndependentSubset::sample_sparse);
  check_sizes_and_places(50'000, 1e-3, 2'000, &IndependentSubset::sample_sparse);
  check_sizes_and_places(300, 0.006, 20'000, &IndependentSubset::sample_dense);
  check_sizes_and_places(50'000, 1e-3, 200, &IndependentSubset::sample_dense);
}

TEST_CASE("adjacent units and successive draws are independent at small rates") {
  constexpr std::int64_t n = 2000, draws = 40'000;
  constexpr double rate = 0.01;
  IndependentSubset subset("test", rate);
  SecretRandom random = SecretRandom::insecure_seeded(3);
  std::int64_t pairs[4] = {};
  std::int64_t repeats = 0;
  std::vector<std::int64_t> last;
  for (int i = 0; i < draws; ++i) {
    const std::vector<std::int64_t> now = subset.sample_sparse(n, random);
    // At distances within a block of 63 and beyond.
    for (const std::int64_t unit : now) {
      for (int at = 0; const std::int64_t distance : {1, 2, 62, 63})
        pairs[at++] += std::binary_search(now.begin(), now.end(), unit + distance);
      repeats += std::binary_search(last.begin(), last.end(), unit);
    }
    last = now;
  }
  for (int at = 0; const std::int64_t distance : {1, 2, 62, 63})
    CHECK(near(static_cast<double>(pairs[at++]), static_cast<double>(draws * (n - distance)),
               rate * rate));
  CHECK(near(static_cast<double>(repeats), static_cast<double>((draws - 1) * n), rate * rate));
}

TEST_CASE("the rate is a multiple of 2^-64 and at most the requested one, but not 0") {
  CHECK(IndependentSubset("test", 1.0).rate() == 1);
  CHECK(IndependentSubset("test", 0.5).rate() == 0.5);
  CHECK(IndependentSubset("test", 1e-4).rate() == std::floor(1e-4 * 0x1p64) / 0x1p64);
  CHECK(IndependentSubset("test", 0x1.8p-64).rate() == 0x1p-64);
  CHECK(IndependentSubset("test", 1e-300).rate() == 0x1p-64);
}

TEST_CASE("all units, no units, and rates that are almost 0 or 1") {
  SecretRandom random = SecretRandom::insecure_seeded(4);
  CHECK(IndependentSubset("test", 1.0).draw(1000, random).size() == 1000);
  CHECK(IndependentSubset("test", 1 - 0x1p-53).draw(1000, random).size() == 1000);
  // A block has 2^62 - 1 places and one dart on average, which counts with probability 3/4.
  IndependentSubset rare("test", 0x1.8p-63);
  CHECK(rare.draw(1'000'000'000'000, random).empty());
  constexpr int draws = 2000;
  double taken = 0;
  for (int i = 0; i < draws; ++i)
    taken += static_cast<double>(rare.sample_sparse(std::int64_t{1} << 61, random).size());
  CHECK(near(taken, draws * 1e6, 0.375e-6));
  CHECK(IndependentSubset("test", 1e-3).draw(0, random).empty());
  CHECK(IndependentSubset("test", 0.7).draw(0, random).empty());
}

TEST_CASE("every subset of a size has the same probability") {
  constexpr std::int64_t n = 6;
  SecretRandom random = SecretRandom::insecure_seeded(5);
  for (const std::int64_t size : {0, 1, 2, 3, 5, 6}) {
    constexpr std::int64_t draws = 50'000;
    std::vector<std::int64_t> counts(1 << n);
    for (int i = 0; i < draws; ++i) {
      const std::vector<std::int64_t> units = uniform_subset(n, size, random);
      CHECK(std::is_sorted(units.begin(), units.end()));
      ++counts[mask(units)];
    }
    std::vector<std::int64_t> possible;
    for (unsigned m = 0; m < counts.size(); ++m) {
      if (std::popcount(m) == size)
        possible.push_back(counts[m]);
      else
        CHECK(counts[m] == 0);
    }
    const auto ways = static_cast<double>(possible.size());
    if (ways > 1) CHECK(fits(possible, std::vector<double>(possible.size(), draws / ways)));
  }
}

// Floyd's algorithm by definition, from the same random words.
TEST_CASE("subsets of few units and of many are by the same algorithm") {
  SecretRandom fast = SecretRandom::insecure_seeded(7), slow = SecretRandom::insecure_seeded(7);
  for (const std::int64_t n :
       std::vector<std::int64_t>{1, 63, 64, 1000, 100'000, 1'000'000'000'000}) {
    for (const std::int64_t size : {0, 1, 2, 50, 700, 5000}) {
      if (size > n) continue;
      std::set<std::int64_t> taken;
      for (std::int64_t last = n - size; last < n; ++last) {
        if (!taken.insert(slow.below(last + 1)).second) taken.insert(last);
      }
      CHECK(uniform_subset(n, size, fast) == std::vector(taken.begin(), taken.end()));
    }
  }
}

TEST_CASE("rates, algorithms and sizes out of range are refused") {
  SecretRandom random = SecretRandom::insecure_seeded(6);
  for (const double rate : {0.0, -0.1, 1.1, std::nan("")})
    CHECK(throws([&] { IndependentSubset("mine", rate); }, "mine: rate"));
  CHECK(throws([&] { IndependentSubset("test", 0.5).sample_sparse(3, random); },
               "0.5, not below 1/2"));
  CHECK(throws([&] { IndependentSubset("test", 1.0).sample_sparse(3, random); }, "not below 1/2"));
  CHECK(throws([&] { uniform_subset(3, 4, random); }, "4 of 3 units"));
  CHECK(throws([&] { uniform_subset(3, -1, random); }, "-1 of 3 units"));
}

}  // namespace
}  // namespace sotto
