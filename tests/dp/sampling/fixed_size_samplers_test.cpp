// Fixed-size batches, sampled and planned: statistics with fixed seeds. Each check below fails for
// a correct sampler with probability under 1e-6.
#include "dp/sampling/fixed_size_samplers.h"

#include <cmath>

#include "core/random/secret_random.h"
#include "tests/support/catch.h"
#include "tests/support/statistics.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

SecretRandom seeded(std::uint64_t seed) { return SecretRandom::insecure_seeded(seed); }

std::vector<std::int64_t> units(const SampledBatch& draw) {
  return {draw.units().begin(), draw.units().end()};
}

TEST_CASE("every batch of a size is as likely as every other, whatever the last was") {
  constexpr std::int64_t n = 5, draws = 200'000;
  FixedSizeSampler sampler(n, 2, seeded(1));
  // Pairs of units, and pairs of those.
  std::vector<std::int64_t> counts(100);
  std::size_t last = 0;
  for (int i = 0; i <= draws; ++i) {
    const SampledBatch draw = sampler.draw();
    REQUIRE(draw.units().size() == 2);
    const std::int64_t a = draw.units()[0], b = draw.units()[1];
    REQUIRE(a < b);
    const auto pair = static_cast<std::size_t>(b * (b - 1) / 2 + a);
    if (i > 0) ++counts[10 * last + pair];
    last = pair;
  }
  CHECK(fits(counts, std::vector<double>(100, draws / 100.0)));
}

TEST_CASE("the rate of a fixed size is the quotient, rounded up") {
  CHECK(FixedSizeSampler(4, 1, seeded(2)).rate() == 0.25);
  CHECK(FixedSizeSampler(7, 7, seeded(2)).rate() == 1);
  for (const std::int64_t population : {3, 7, 10, 49, 60'000, 999'983}) {
    for (const std::int64_t size : {1, 2, 3}) {
      FixedSizeSampler sampler(population, size, seeded(3));
      const double rate = sampler.rate();
      // The products have more digits than a double.
      const long double product = static_cast<long double>(rate) * population;
      const long double less = static_cast<long double>(std::nextafter(rate, 0.0)) * population;
      CHECK(product >= size);
      CHECK(less < size);
      CHECK(sampler.event() == Event{.sampling = Sampling::fixed_size, .sampling_rate = rate});
      const SampledBatch draw = sampler.draw();
      CHECK(draw.event() == sampler.event());
      CHECK(draw.expected_batch_size() == static_cast<double>(size));
      CHECK(draw.min_separation() == 1);
      CHECK_FALSE(draw.secure());
    }
  }
  CHECK(FixedSizeSampler(10, 3).draw().secure());
}

TEST_CASE("a plan takes turns by number, and leaves the remainder out") {
  PlannedSampler sampler(7, 2, 5);
  const std::vector<std::vector<std::int64_t>> batches = {{0, 1}, {2, 3}, {4, 5}};
  Event event{.sampling = Sampling::planned, .batches = 5};
  for (std::size_t step = 0; step < 5; ++step) {
    CHECK(sampler.event() == event);
    const SampledBatch draw = sampler.draw();
    CHECK(units(draw) == batches[step % 3]);
    CHECK(draw.event() == event);
    CHECK(draw.min_separation() == 3);
    CHECK(draw.expected_batch_size() == 2);
    CHECK(draw.number() == step);
    CHECK(draw.secure());
    event.paid = true;
  }
}

TEST_CASE("a plan ends, and restarts only with a new draw number") {
  PlannedSampler sampler(4, 2, 3);
  for (int step = 0; step < 3; ++step) sampler.draw();
  CHECK(throws([&] { sampler.draw(); }, "planned: all 3 batches of the plan were drawn"));
  CHECK(throws([&] { sampler.draw(); }, "planned: all 3 batches of the plan were drawn"));
  const SamplerState over = sampler.state();
  sampler.resume_from(8);
  CHECK_FALSE(sampler.event().paid);
  const SampledBatch draw = sampler.draw();
  CHECK(draw.number() == 8);
  CHECK(units(draw) == std::vector<std::int64_t>{0, 1});
  sampler.load_state(over);
  CHECK(throws([&] { sampler.draw(); }, "planned: all 3 batches of the plan were drawn"));
}

TEST_CASE("a plan's state continues with its next batch, in no other plan") {
  PlannedSampler sampler(9, 3, 7);
  for (int step = 0; step < 4; ++step) sampler.draw();
  const SamplerState state = sampler.state();
  PlannedSampler other(9, 3, 7);
  other.load_state(state);
  const SampledBatch draw = other.draw();
  CHECK(units(draw) == std::vector<std::int64_t>{3, 4, 5});
  CHECK(draw.event().paid);
  CHECK(draw.number() == 4);
  CHECK(throws([&] { PlannedSampler(9, 2, 7).load_state(state); }, "other batches"));
  CHECK(throws([&] { PlannedSampler(9, 3, 8).load_state(state); }, "other batches"));
  CHECK(throws([&] { PlannedSampler(9, 3, 3).load_state(state); }, "after 4 of 3 batches"));
  CHECK(throws([&] { PlannedSampler(10, 3, 7).load_state(state); }, "a state of 9 units for 10"));
}

TEST_CASE("sizes and steps out of range are refused") {
  for (const std::int64_t size : {-1, 0, 11}) {
    CHECK(throws([&] { FixedSizeSampler(10, size); }, "of 10 units"));
    CHECK(throws([&] { PlannedSampler(10, size, 5); }, "of 10 units"));
  }
  CHECK(throws([] { FixedSizeSampler(std::int64_t{1} << 54, 3); }, "3 of 18014398509481984 units"));
  CHECK(throws([] { PlannedSampler(10, 5, 0); }, "a plan of 0 steps"));
}

}  // namespace
}  // namespace sotto
