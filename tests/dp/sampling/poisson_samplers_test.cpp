// Truncated and cyclic Poisson sampling: statistics with fixed seeds. Each check below fails for a
// correct sampler with probability under 1e-6.
#include "dp/sampling/poisson_samplers.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/random/secret_random.h"
#include "dp/numerics/binomial_tail.h"
#include "tests/support/catch.h"
#include "tests/support/statistics.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

SecretRandom seeded(std::uint64_t seed) { return SecretRandom::insecure_seeded(seed); }

TEST_CASE("a truncated batch is a Poisson batch, or a uniform part of one that is too large") {
  constexpr std::int64_t n = 6, max_batch_size = 2, draws = 200'000;
  constexpr double rate = 0.3;
  TruncatedPoissonSampler sampler(n, rate, max_batch_size, seeded(1));
  std::vector<std::int64_t> counts(1 << n);
  for (int i = 0; i < draws; ++i) {
    const SampledBatch draw = sampler.draw();
    std::size_t mask = 0;
    for (const std::int64_t unit : draw.units()) mask |= std::size_t{1} << unit;
    ++counts[mask];
    CHECK(std::is_sorted(draw.units().begin(), draw.units().end()));
  }
  const auto poisson = [](int size) { return std::pow(rate, size) * std::pow(1 - rate, n - size); };
  constexpr double pairs = 15;
  const double at_least_two = 1 - poisson(0) - n * poisson(1);
  std::vector<double> expected;
  for (unsigned mask = 0; mask < counts.size(); ++mask) {
    const int size = std::popcount(mask);
    expected.push_back(draws * (size < 2 ? poisson(size) : size == 2 ? at_least_two / pairs : 0));
    if (size > 2) CHECK(counts[mask] == 0);
  }
  CHECK(fits(counts, expected));
}

TEST_CASE("the cut bounds the probability of a batch too large, for one unit more as well") {
  const TruncatedPoissonSampler small(3, 0.5, 3, seeded(2));
  const Event event = small.event();
  CHECK(event == Event{.sampling = Sampling::truncated_poisson,
                       .sampling_rate = 0.5,
                       .truncation_probability = event.truncation_probability});
  CHECK(event.truncation_probability >= 1.0 / 16);  // all of 4 units
  CHECK(event.truncation_probability < 1.001 / 16);
  CHECK(TruncatedPoissonSampler(3, 0.5, 4, seeded(2)).event().truncation_probability == 0);
  TruncatedPoissonSampler large(60'000, 256.0 / 60'000, 400, seeded(3));
  CHECK(large.event().truncation_probability == binomial_tail(60'001, large.rate(), 400));
  const SampledBatch draw = large.draw();
  CHECK(draw.event() == large.event());
  CHECK(draw.expected_batch_size() == large.rate() * 60'000);
  CHECK(draw.min_separation() == 1);
  CHECK(TruncatedPoissonSampler(10, 0.5, 3, seeded(4)).expected_batch_size() == 3);
  CHECK(large.max_batch_size() == 400);
}

TEST_CASE("a state of truncated batches is read whatever the last digits of its cut") {
  TruncatedPoissonSampler sampler(100, 0.1, 20, seeded(5));
  SamplerState state = sampler.state();
  state.event.truncation_probability *= 1 + 1e-15;
  state.number = 5;
  sampler.load_state(state);
  CHECK(sampler.draw().number() == 5);
}

TEST_CASE("groups take turns, and units in them take part independently") {
  constexpr std::int64_t n = 11, groups = 4, passes = 40'000;
  constexpr double rate = 0.3;
  CyclicPoissonSampler sampler(n, groups, rate, seeded(6));
  std::vector<std::int64_t> counts(n);
  std::int64_t both = 0, repeats = 0;
  bool last = false;
  for (int pass = 0; pass < passes; ++pass) {
    for (std::int64_t group = 0; group < groups; ++group) {
      const SampledBatch draw = sampler.draw();
      bool first = false, second = false;
      for (const std::int64_t unit : draw.units()) {
        CHECK(unit % groups == group);
        ++counts[static_cast<std::size_t>(unit)];
        first |= unit == 1;
        second |= unit == 5;
      }
      CHECK(std::is_sorted(draw.units().begin(), draw.units().end()));
      if (group != 1) continue;
      both += first && second;
      repeats += first && last;
      last = first;
    }
  }
  for (const std::int64_t count : counts) CHECK(near(static_cast<double>(count), passes, rate));
  CHECK(near(static_cast<double>(both), passes, rate * rate));
  CHECK(near(static_cast<double>(repeats), passes - 1, rate * rate));
}

TEST_CASE("the first group's turn is charged for its epoch, also after a new draw number") {
  CyclicPoissonSampler sampler(10, 3, 0.25, seeded(7));
  const Event first{.sampling = Sampling::cyclic_poisson, .sampling_rate = 0.25, .batches = 3};
  Event later = first;
  later.paid = true;
  for (int pass = 0; pass < 2; ++pass) {
    for (const Event& event : {first, later, later}) {
      CHECK(sampler.event() == event);
      const SampledBatch draw = sampler.draw();
      CHECK(draw.event() == event);
      CHECK(draw.min_separation() == 3);
      CHECK(draw.expected_batch_size() == 10 * 0.25 / 3);
    }
  }
  sampler.draw();
  sampler.resume_from(40);
  CHECK(sampler.event() == first);
  CyclicPoissonSampler one(10, 1, 0.25, seeded(8));
  one.draw();
  CHECK_FALSE(one.event().paid);
}

TEST_CASE("a cyclic state continues with the next group") {
  CyclicPoissonSampler everybody(7, 3, 1, seeded(9));
  everybody.draw();
  const SamplerState state = everybody.state();
  CyclicPoissonSampler other(7, 3, 1, seeded(10));
  other.load_state(state);
  const SampledBatch draw = other.draw();
  CHECK(std::vector<std::int64_t>(draw.units().begin(), draw.units().end()) ==
        std::vector<std::int64_t>{1, 4});
  CHECK(draw.event().paid);
  CHECK(draw.number() == 1);
  CHECK(throws([&] { CyclicPoissonSampler(7, 3, 0.5, seeded(11)).load_state(state); },
               "other batches"));
  CHECK(throws([&] { CyclicPoissonSampler(7, 4, 1, seeded(11)).load_state(state); },
               "other batches"));
}

TEST_CASE("rates, sizes and groups out of range are refused") {
  for (const double rate : {0.0, 1.1, std::nan("")}) {
    CHECK(throws([&] { TruncatedPoissonSampler(10, rate, 5); }, "TruncatedPoissonSampler: rate"));
    CHECK(throws([&] { CyclicPoissonSampler(10, 2, rate); }, "CyclicPoissonSampler: rate"));
  }
  CHECK(throws([] { TruncatedPoissonSampler(10, 0.5, 0); }, "at most 0 units of 10"));
  CHECK(throws([] { TruncatedPoissonSampler(0, 0.5, 3); }, "a population of 0"));
  CHECK(throws([] { CyclicPoissonSampler(10, 0, 0.5); }, "0 groups of 10 units"));
  CHECK(throws([] { CyclicPoissonSampler(10, 11, 0.5); }, "11 groups of 10 units"));
}

TEST_CASE("batches are secret unless seeded") {
  CHECK(TruncatedPoissonSampler(10, 0.5, 5).draw().secure());
  CHECK(CyclicPoissonSampler(10, 2, 0.5).draw().secure());
  CHECK_FALSE(TruncatedPoissonSampler(10, 0.5, 5, seeded(12)).draw().secure());
  CHECK_FALSE(CyclicPoissonSampler(10, 2, 0.5, seeded(12)).draw().secure());
}

}  // namespace
}  // namespace sotto
