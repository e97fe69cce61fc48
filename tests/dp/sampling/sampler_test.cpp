// Poisson sampling has its stated probabilities: statistics with fixed seeds. Each check below
// fails for a correct sampler with probability under 1e-6.
#include "dp/sampling/sampler.h"

#include <cmath>

#include "core/random/secret_random.h"
#include "dp/sampling/poisson_samplers.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

constexpr double five_sigma = 5;

PoissonSampler sampler(std::int64_t population, double rate, std::uint64_t seed) {
  return PoissonSampler(population, rate, SecretRandom::insecure_seeded(seed));
}

TEST_CASE("every unit takes part with the stated probability") {
  for (const double rate : {0.003, 0.1, 0.5, 0.97}) {
    PoissonSampler s = sampler(200, rate, 1);
    constexpr int draws = 4000;
    std::vector<int> counts(200);
    for (int i = 0; i < draws; ++i) {
      const SampledBatch draw = s.draw();
      for (const std::int64_t unit : draw.units()) ++counts[static_cast<std::size_t>(unit)];
    }
    const double stddev = std::sqrt(draws * rate * (1 - rate));
    for (const int count : counts)
      CHECK(std::abs(count - draws * rate) < (five_sigma + 1) * stddev + 1);
  }
}

TEST_CASE("two units take part independently, and so do successive draws") {
  PoissonSampler s = sampler(8, 0.3, 2);
  constexpr int draws = 40000;
  int pairs[8][8] = {};
  int repeats = 0;
  std::vector<bool> last(8);
  for (int i = 0; i < draws; ++i) {
    const SampledBatch draw = s.draw();
    std::vector<bool> now(8);
    for (const std::int64_t a : draw.units()) {
      now[static_cast<std::size_t>(a)] = true;
      for (const std::int64_t b : draw.units()) ++pairs[a][b];
    }
    for (std::size_t a = 0; a < 8; ++a) repeats += last[a] && now[a];
    last = now;
  }
  const double expected = draws * 0.09;
  const double stddev = std::sqrt(draws * 0.09 * 0.91);
  for (int a = 0; a < 8; ++a) {
    for (int b = 0; b < a; ++b) CHECK(std::abs(pairs[a][b] - expected) < (five_sigma + 1) * stddev);
  }
  CHECK(std::abs(repeats - 8 * expected) < (five_sigma + 1) * std::sqrt(8.0) * stddev);
}

TEST_CASE("small rates are neither rounded up nor down") {
  // 2e8 random numbers at rate 1e-8: two units expected; none in all of 20 draws has probability
  // e^-40.
  constexpr double rate = 1e-8;
  PoissonSampler s = sampler(10'000'000, rate, 3);
  CHECK(s.rate() == Approx(rate).epsilon(1e-11));
  std::int64_t heads = 0;
  for (int i = 0; i < 20; ++i) heads += static_cast<std::int64_t>(s.draw().units().size());
  CHECK(heads <= 16);  // P(Poisson(2) > 16) < 1e-9
  // Rates that only the low 48 bits of the random number distinguish: 2^-16 boundaries.
  for (const double edge : {0x1p-16, 0x1.8p-16, 0x1p-17, 3 * 0x1p-18}) {
    PoissonSampler t = sampler(1'000'000, edge, 4);
    std::int64_t count = 0;
    for (int i = 0; i < 40; ++i) count += static_cast<std::int64_t>(t.draw().units().size());
    const double mean = 40e6 * edge;
    CHECK(std::abs(static_cast<double>(count) - mean) < (five_sigma + 1) * std::sqrt(mean));
  }
}

TEST_CASE("the rate of a draw is the sampler's, and at least the requested one up to 2^-64") {
  for (const double rate : {1e-8, 1.0 / 3, 256.0 / 60000, 0.999999, 1.0}) {
    PoissonSampler s = sampler(1000, rate, 5);
    CHECK(std::abs(s.rate() - rate) <= 0x1p-63);
    const SampledBatch draw = s.draw();
    CHECK(draw.event() == s.event());
    CHECK(draw.expected_batch_size() == s.rate() * 1000);
    CHECK(draw.event().sampling == Sampling::poisson);
    CHECK_FALSE(draw.secure());
  }
  CHECK(sampler(1000, 1.0, 5).draw().units().size() == 1000);
}

TEST_CASE("draws are numbered and sorted") {
  PoissonSampler s = sampler(100, 0.4, 6);
  s.resume_from(17);
  const SampledBatch first = s.draw();
  const SampledBatch second = s.draw();
  CHECK(first.number() == 17);
  CHECK(second.number() == 18);
  CHECK(std::is_sorted(first.units().begin(), first.units().end()));
}

TEST_CASE("a draw may be empty") {
  PoissonSampler s = sampler(3, 1e-9, 7);
  CHECK(s.draw().units().empty());
}

TEST_CASE("a state continues the numbers") {
  PoissonSampler s = sampler(100, 0.4, 8);
  s.resume_from(7);
  s.draw();
  const SamplerState state = s.state();
  CHECK(state.event == s.event());
  CHECK(state.population == 100);
  CHECK(state.expected_batch_size == s.expected_batch_size());
  CHECK(state.number == 8);
  CHECK(state.rest.empty());
  PoissonSampler t = sampler(100, 0.4, 9);
  t.load_state(state);
  CHECK(t.draw().number() == 8);
  CHECK(t.draw().number() == 9);
  CHECK(throws([&] { PoissonSampler(100, 0.4).load_state(state); }, "seeded batches for secret"));
  t.load_state(PoissonSampler(100, 0.4).state());
  CHECK_FALSE(t.draw().secure());
}

TEST_CASE("a state of another sampler, or an impossible one, is refused and changes nothing") {
  PoissonSampler s = sampler(100, 0.5, 10);
  s.resume_from(3);
  const SamplerState good = s.state();
  const auto refused = [&](auto change, const char* text) {
    SamplerState bad = good;
    bad.number = 1000;
    change(bad);
    CHECK(throws([&] { s.load_state(bad); }, text));
    CHECK(s.state().number == 3);
  };
  refused([](SamplerState& state) { state.population = 99; }, "a state of 99 units for 100");
  refused([](SamplerState& state) { state.expected_batch_size = 51; }, "51 units on average");
  refused([](SamplerState& state) { state.event.sampling_rate = 0.25; }, "0.25");
  refused([](SamplerState& state) { state.event.paid = true; }, "other batches");
  refused([](SamplerState& state) { state.event.noise_multiplier = 1; }, "other batches");
  refused([](SamplerState& state) { state.event = FullBatchSampler(100).event(); }, "full_batch");
  refused([](SamplerState& state) { state.index_in_epoch = 2; }, "after 2 of 1 batches");
  refused([](SamplerState& state) { state.index_in_epoch = -1; }, "after -1 of 1 batches");
  refused([](SamplerState& state) { state.rest = {4}; },
          "poisson: a state with 1 units of an epoch");
}

TEST_CASE("rates and populations out of range are refused") {
  CHECK_THROWS_AS(sampler(10, 0, 1), std::invalid_argument);
  CHECK_THROWS_AS(sampler(10, -0.1, 1), std::invalid_argument);
  CHECK_THROWS_AS(sampler(10, 1.1, 1), std::invalid_argument);
  CHECK_THROWS_AS(sampler(10, std::nan(""), 1), std::invalid_argument);
  CHECK_THROWS_AS(sampler(0, 0.5, 1), std::invalid_argument);
}

}  // namespace
}  // namespace sotto
