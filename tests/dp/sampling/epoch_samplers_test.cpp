// Epochs of secret batches: statistics with fixed seeds. Each check below fails for a correct
// sampler with probability under 1e-6.
#include "dp/sampling/epoch_samplers.h"

#include <algorithm>
#include <map>

#include "core/random/secret_random.h"
#include "dp/ledger/ledger.h"
#include "tests/support/catch.h"
#include "tests/support/ledger_files.h"
#include "tests/support/statistics.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

SecretRandom seeded(std::uint64_t seed) { return SecretRandom::insecure_seeded(seed); }

// The batch of every unit in the next epoch; fails unless each is in exactly one, in increasing
// order.
std::vector<std::int64_t> epoch_of(Sampler& sampler) {
  std::vector<std::int64_t> batch_of(static_cast<std::size_t>(sampler.population()), -1);
  for (std::int64_t batch = 0; batch < sampler.event().batches; ++batch) {
    const SampledBatch draw = sampler.draw();
    REQUIRE(std::is_sorted(draw.units().begin(), draw.units().end()));
    for (const std::int64_t unit : draw.units()) {
      REQUIRE(batch_of.at(static_cast<std::size_t>(unit)) == -1);
      batch_of[static_cast<std::size_t>(unit)] = batch;
    }
  }
  REQUIRE(std::count(batch_of.begin(), batch_of.end(), -1) == 0);
  return batch_of;
}

// A number for each assignment of units to batches.
std::size_t number(const std::vector<std::int64_t>& batch_of, std::int64_t batches) {
  std::int64_t number = 0;
  for (const std::int64_t batch : batch_of) number = number * batches + batch;
  return static_cast<std::size_t>(number);
}

// Checks that the `possible` assignments of units to batches are equally likely, given the last
// epoch's.
void check_uniform(Sampler& sampler, std::size_t possible) {
  constexpr int passes = 100'000;
  const std::int64_t batches = sampler.event().batches;
  std::map<std::size_t, std::int64_t> counts;
  std::size_t repeats = 0, last = 0;
  for (int i = 0; i < passes; ++i) {
    const std::size_t now = number(epoch_of(sampler), batches);
    ++counts[now];
    repeats += i > 0 && now == last;
    last = now;
  }
  CHECK(counts.size() == possible);
  const double probability = 1 / static_cast<double>(possible);
  std::vector<std::int64_t> found;
  for (const auto& [assignment, count] : counts) found.push_back(count);
  CHECK(fits(found, std::vector<double>(found.size(), passes * probability)));
  CHECK(near(static_cast<double>(repeats), passes - 1, probability));
}

TEST_CASE("every partition is as likely as every other, whatever the last epoch was") {
  PartitionSampler uneven(5, 2, seeded(1));
  check_uniform(uneven, 30);
  PartitionSampler order(4, 1, seeded(2));
  check_uniform(order, 24);
}

TEST_CASE("every assignment of balls to bins is as likely as every other") {
  BallsAndBinsSampler sampler(4, 3, seeded(3));
  check_uniform(sampler, 81);
}

TEST_CASE("a partition's batches differ by one unit at most") {
  for (const std::int64_t population : {1, 7, 8, 9, 100}) {
    for (const std::int64_t batch : {1, 3, 4, 7}) {
      if (batch > population) continue;
      PartitionSampler sampler(population, batch, seeded(2));
      const std::int64_t batches = (population + batch - 1) / batch;
      CHECK(sampler.event() == Event{.sampling = Sampling::partition, .batches = batches});
      std::vector<std::size_t> sizes;
      for (std::int64_t i = 0; i < batches; ++i) sizes.push_back(sampler.draw().units().size());
      const auto [min, max] = std::minmax_element(sizes.begin(), sizes.end());
      CHECK(*max - *min <= 1);
      CHECK(*max <= static_cast<std::size_t>(batch));
      CHECK(sampler.expected_batch_size() * static_cast<double>(batches) ==
            Approx(static_cast<double>(population)).epsilon(1e-15));
    }
  }
}

template <class S>
void check_payment(S& sampler, const Event& first) {
  Event later = first;
  later.paid = true;
  for (int pass = 0; pass < 2; ++pass) {
    for (std::int64_t index_in_epoch = 0; index_in_epoch < first.batches; ++index_in_epoch) {
      const Event& event = index_in_epoch == 0 ? first : later;
      CHECK(sampler.event() == event);
      const SampledBatch draw = sampler.draw();
      CHECK(draw.event() == event);
      CHECK(draw.min_separation() == 1);
      CHECK(draw.expected_batch_size() == sampler.expected_batch_size());
      CHECK_FALSE(draw.secure());
    }
  }
}

TEST_CASE("the first batch of an epoch is charged for all") {
  PartitionSampler partition(10, 4, seeded(4));
  check_payment(partition, {.sampling = Sampling::partition, .batches = 3});
  CHECK(partition.expected_batch_size() == 10 / 3.0);
  BallsAndBinsSampler balls(10, 4, seeded(5));
  check_payment(balls, {.sampling = Sampling::balls_and_bins, .batches = 4});
  CHECK(balls.expected_batch_size() == 2.5);
  PartitionSampler whole(10, 10, seeded(6));
  check_payment(whole, {.sampling = Sampling::partition, .batches = 1});
  CHECK(PartitionSampler(10, 4).draw().secure());
  CHECK(BallsAndBinsSampler(10, 4).draw().secure());
}

TEST_CASE("a new draw number starts a new epoch of all units, which is charged") {
  PartitionSampler partition(100, 10, seeded(7));
  BallsAndBinsSampler balls(100, 10, seeded(8));
  for (Sampler* sampler : {static_cast<Sampler*>(&partition), static_cast<Sampler*>(&balls)}) {
    const std::vector<std::int64_t> before = epoch_of(*sampler);
    for (int i = 0; i < 4; ++i) sampler->draw();
    CHECK(sampler->event().paid);
    sampler->resume_from(50);
    CHECK_FALSE(sampler->event().paid);
    CHECK(sampler->state().rest.empty());
    CHECK(epoch_of(*sampler) != before);
    CHECK(sampler->draw().number() == 60);
  }
}

template <class S>
void check_state(S sampler, S other) {
  // In the middle of the second epoch, while another one is begun on the other side.
  for (int i = 0; i < 7; ++i) sampler.draw();
  for (int i = 0; i < 3; ++i) other.draw();
  const SamplerState state = sampler.state();
  other.load_state(state);
  CHECK(other.state().rest == state.rest);
  for (int i = 0; i < 3; ++i) {
    const SampledBatch a = sampler.draw(), b = other.draw();
    CHECK(std::equal(a.units().begin(), a.units().end(), b.units().begin(), b.units().end()));
    CHECK(a.event() == b.event());
    CHECK(a.number() == b.number());
  }
  // The epoch is over: nothing of it remains, and the next one is the generator's.
  CHECK(sampler.state().rest.empty());
  CHECK(sampler.state().index_in_epoch == 5);
  other.load_state(sampler.state());
  CHECK_FALSE(other.event().paid);
  CHECK(epoch_of(sampler) != epoch_of(other));
}

TEST_CASE("a state within an epoch continues it") {
  check_state(PartitionSampler(24, 5, seeded(9)), PartitionSampler(24, 5, seeded(10)));
  check_state(BallsAndBinsSampler(24, 5, seeded(9)), BallsAndBinsSampler(24, 5, seeded(10)));
}

TEST_CASE("an epoch that is drawn anew is not paid by the one that was charged") {
  for (const bool balls : {false, true}) {
    const auto sampler = [&]() -> std::unique_ptr<Sampler> {
      if (balls) return std::make_unique<BallsAndBinsSampler>(20, 4);
      return std::make_unique<PartitionSampler>(20, 5);
    };
    const Place place;
    const auto record = [](Ledger& ledger, const SampledBatch& draw) {
      Event event = draw.event();
      event.noise_multiplier = 1;
      ledger.record(event, draw.number(), {},
                    EpochPosition{draw.epoch_began(), draw.index_in_epoch(), draw.epoch_id()});
    };
    const auto one = sampler(), two = sampler();
    const SamplerState before = one->state();
    std::optional<SamplerState> within;
    LedgerPosition mark;
    {
      Ledger ledger = Ledger::create(place.path(), {.relation = NeighboringRelation::replace_one});
      mark = ledger.position();
      record(ledger, one->draw());
      record(ledger, one->draw());
      within = one->state();
    }
    Ledger ledger = Ledger::resume(place.path(), mark);
    // The same draw numbers, other batches.
    two->load_state(before);
    CHECK_THROWS_AS(record(ledger, two->draw()), std::invalid_argument);
    two->draw();
    CHECK(throws([&] { record(ledger, two->draw()); }, "drawn anew since it was charged"));
    // The rest of the batches.
    two->load_state(*within);
    record(ledger, two->draw());
    CHECK(ledger.releases() == 3);
  }
}

TEST_CASE("a state that is no rest of an epoch is refused and changes nothing") {
  PartitionSampler sampler(5, 2, seeded(11));
  sampler.draw();
  const SamplerState good = sampler.state();
  REQUIRE(good.rest.size() == 5);
  REQUIRE(std::count(good.rest.begin(), good.rest.end(), 1) == 2);
  REQUIRE(std::count(good.rest.begin(), good.rest.end(), 2) == 1);
  const auto refused = [&](std::int64_t index_in_epoch, std::vector<std::int64_t> rest,
                           const char* text) {
    SamplerState bad = good;
    bad.index_in_epoch = index_in_epoch;
    bad.rest = std::move(rest);
    bad.event.paid = index_in_epoch % 3 > 0;
    CHECK(throws([&] { sampler.load_state(bad); }, text));
    CHECK(sampler.state().rest == good.rest);
  };
  refused(1, {1, 1, 2, -1}, "the batches of 4 units of 5");
  refused(1, {}, "the batches of 0 units of 5");
  refused(1, {1, 1, 2, 3, -1}, "a unit in batch 3 after 1 of 3");
  refused(1, {1, 1, 2, 0, -1}, "a unit in batch 0 after 1 of 3");
  refused(1, {1, 1, 2, -2, -1}, "a unit in batch -2 after 1 of 3");
  refused(1, {1, 1, 1, 2, -1}, "3 units in batch 1, not 2");
  refused(1, {1, 1, 2, 2, -1}, "2 units in batch 2, not 1");
  refused(2, {1, 1, 2, -1, -1}, "a unit in batch 1 after 2 of 3");
  refused(0, good.rest, "partition: a state with 5 units of an epoch");
  refused(3, good.rest, "partition: a state with 5 units of an epoch");
  BallsAndBinsSampler balls(5, 3, seeded(12));
  SamplerState state = balls.state();
  state.index_in_epoch = 1;
  state.event.paid = true;
  state.rest = {1, 1, 1, 1, 1};
  balls.load_state(state);
  CHECK(balls.draw().units().size() == 5);
  CHECK(balls.draw().units().empty());
}

TEST_CASE("batches and bins out of range are refused") {
  for (const std::int64_t many : {-1, 0, 11}) {
    CHECK(throws([&] { PartitionSampler(10, many); }, "of 10 units"));
    CHECK(throws([&] { BallsAndBinsSampler(10, many); }, "of 10 units"));
  }
}

}  // namespace
}  // namespace sotto
