// Plans are kept or nothing is released, the first release is charged for all, and a resumed plan
// continues as if it had not stopped.
#include <cmath>

#include <sys/wait.h>
#include <unistd.h>

#include "core/random/rounded_gaussian.h"
#include "core/random/secret_random.h"
#include "dp/noise/correlated/correlated_mechanism.h"
#include "dp/noise/noise_grid.h"
#include "dp/sampling/poisson_samplers.h"
#include "tests/support/catch.h"
#include "tests/support/noise_plans.h"
#include "tests/support/noise_strategies.h"

namespace sotto {
namespace {

TEST_CASE("the first release is charged for the whole plan") {
  Fixture f;
  CorrelatedMechanism mechanism(banded_plan());
  PlannedEpochs sampler(Sampling::planned, 6, 3);
  for (int t = 0; t < 6; ++t) f.release(mechanism, sampler);
  REQUIRE(f.ledger.events().size() == 2);
  const Event first{
      .noise_multiplier = 1.7, .sampling = Sampling::planned, .batches = 6, .paid = false};
  Event later = first;
  later.paid = true;
  CHECK(f.ledger.events()[0] == std::pair<Event, std::int64_t>{first, 1});
  CHECK(f.ledger.events()[1] == std::pair<Event, std::int64_t>{later, 5});
  CHECK(f.ledger.private_noise());
  CHECK(mechanism.steps_made() == 6);
  f.check_refused(mechanism, sampler);  // the plan is over
}

TEST_CASE("cyclic Poisson batches are scaled by the largest column") {
  const StrategyMatrix strategy(BandedToeplitz{{1, 0.5, 0.25}}, 8);
  const NoisePlan plan{.strategy = strategy,
                       .noise_multiplier = 1.7,
                       .sampling = Sampling::cyclic_poisson,
                       .min_separation = 4};
  CorrelatedMechanism mechanism(plan);
  CHECK(mechanism.factor_sensitivity() == Approx(std::sqrt(1.3125)));
  Fixture f;
  PlannedEpochs sampler(Sampling::cyclic_poisson, 4, 4);
  for (int t = 0; t < 8; ++t) f.release(mechanism, sampler);
  const EventCounts events = f.ledger.events();
  REQUIRE(events.size() == 2);  // two epochs, each charged with its first batch
  for (const auto& [event, count] : events) {
    CHECK(event.sampling_rate == 0.5);
    CHECK(event.noise_multiplier == 1.7);
    CHECK(count == (event.paid ? 6 : 2));
  }
  NoisePlan narrow = plan;
  narrow.min_separation = 2;
  CHECK_THROWS_AS(CorrelatedMechanism(narrow), std::invalid_argument);
}

TEST_CASE("plans without an analysis are an error") {
  NoisePlan plan = banded_plan();
  plan.noise_multiplier = 0;
  CHECK_THROWS_AS(CorrelatedMechanism(plan), std::invalid_argument);
  plan.noise_multiplier = std::nan("");
  CHECK_THROWS_AS(CorrelatedMechanism(plan), std::invalid_argument);
  plan = banded_plan();
  plan.min_separation = 0;
  CHECK_THROWS_AS(CorrelatedMechanism(plan), std::invalid_argument);
  plan = banded_plan();
  plan.sampling = Sampling::poisson;
  CHECK_THROWS_AS(CorrelatedMechanism(plan), std::invalid_argument);
}

TEST_CASE("batches of another kind are refused before the ledger is written") {
  Fixture f;
  CorrelatedMechanism mechanism(banded_plan(), SecretRandom::insecure_seeded(1));
  PoissonSampler poisson(100, 0.5);
  PlannedEpochs longer(Sampling::planned, 7, 3), closer(Sampling::planned, 6, 2),
      cyclic(Sampling::cyclic_poisson, 6, 6);
  for (Sampler* sampler : std::initializer_list<Sampler*>{&poisson, &longer, &closer, &cyclic})
    f.check_refused(mechanism, *sampler);
  PlannedEpochs late(Sampling::planned, 6, 3);
  late.draw();
  f.check_refused(mechanism, late);  // not the first batch
  PlannedEpochs right(Sampling::planned, 6, 5);
  CHECK_NOTHROW(f.release(mechanism, right));
}

TEST_CASE("steps out of order are refused before the ledger is written") {
  Fixture f;
  CorrelatedMechanism mechanism(banded_plan());
  PlannedEpochs sampler(Sampling::planned, 6, 3);
  f.release(mechanism, sampler);
  PlannedEpochs again(Sampling::planned, 6, 3);
  f.check_refused(mechanism, again);  // the first batch
  again.resume_from(1);
  f.check_refused(mechanism, again);  // a new epoch
  f.check_refused(mechanism, again);  // a later batch, but draw 2 at step 1
  CHECK_NOTHROW(f.release(mechanism, sampler));
  Ledger other;
  other.record({.noise_multiplier = 1}, 7);
  f.clipper.discard();
  CHECK_THROWS_AS(mechanism.release(f.clipper.finish(sampler.draw()), other),
                  std::invalid_argument);  // draw 2 was used in this ledger
  CHECK(other.releases() == 1);
}

TEST_CASE("the sensitivity and the parameters stay as they were") {
  Fixture f;
  CorrelatedMechanism mechanism(banded_plan());
  PlannedEpochs sampler(Sampling::planned, 6, 3);
  f.release(mechanism, sampler);
  Clipper wider({{{&f.a, &f.b}, 2 * bound}}), fewer({{{&f.b}, bound}});
  for (Clipper* clipper : {&wider, &fewer}) {
    PlannedEpochs same(Sampling::planned, 6, 3);
    same.draw();
    CHECK_THROWS_AS(mechanism.release(clipper->finish(same.draw()), f.ledger),
                    std::invalid_argument);
    CHECK(f.ledger.releases() == 1);
  }
  CHECK_NOTHROW(f.release(mechanism, sampler));
}

TEST_CASE("a sum that is not a number is refused before the ledger is written") {
  Parameter w(zeros({2}, Dtype::f64));
  Clipper clipper({{{&w}, 1}});
  CorrelatedMechanism mechanism(banded_plan());
  Ledger ledger;
  PlannedEpochs sampler(Sampling::planned, 6, 3);
  // A clipped sum cannot be NaN: the test writes it.
  clipper.clipped_sums()[0].second.data<double>()[1] = std::nan("");
  CHECK_THROWS_AS(mechanism.release(clipper.finish(sampler.draw()), ledger), std::invalid_argument);
  CHECK(ledger.releases() == 0);
}

// Two plans with the same keystream; the second stops after three steps, and a new mechanism
// continues it with the keystream that follows.
TEST_CASE("a plan that is resumed releases what it would have released") {
  constexpr std::uint64_t blocks_of_step = 75 + 13;  // 8 draws each, for 600 and 100 elements
  for (const StrategyMatrix& strategy : strategies(6)) {
    CorrelatedMechanism uninterrupted(plan_of(strategy), SecretRandom::insecure_seeded(5));
    const auto expected = noise_of(uninterrupted);
    CorrelatedMechanism first(plan_of(strategy), SecretRandom::insecure_seeded(5));
    Fixture f;
    PlannedEpochs sampler(Sampling::planned, 6, 3);
    for (int t = 0; t < 3; ++t) f.noise(first, sampler);
    SecretRandom later = SecretRandom::insecure_seeded(5);
    later.reserve(3 * blocks_of_step);
    CorrelatedMechanism second(plan_of(strategy), std::move(later));
    second.load_state(first.state());
    CHECK(second.steps_made() == 3);
    for (std::size_t t = 3; t < 6; ++t) CHECK(f.noise(second, sampler) == expected[t]);
  }
}

TEST_CASE("a plan continues with the very next draw or not at all") {
  Fixture f;
  CorrelatedMechanism first(banded_plan(), SecretRandom::insecure_seeded(6));
  PlannedEpochs sampler(Sampling::planned, 6, 3);
  for (int t = 0; t < 2; ++t) f.release(first, sampler);
  const auto old = first.state();
  f.release(first, sampler);
  CorrelatedMechanism second(banded_plan(), SecretRandom::insecure_seeded(7));
  second.load_state(old);
  f.check_refused(second, sampler);  // draw 3 at step 2
  PlannedEpochs behind(Sampling::planned, 6, 3);
  for (int t = 0; t < 2; ++t) behind.draw();
  f.check_refused(second, behind);  // draw 2 once more
  second.load_state(first.state());
  Ledger empty;  // has never seen the plan
  PlannedEpochs right(Sampling::planned, 6, 3);
  for (int t = 0; t < 3; ++t) right.draw();
  f.clipper.discard();
  CHECK_THROWS_AS(second.release(f.clipper.finish(right.draw()), empty), std::invalid_argument);
  CHECK(empty.releases() == 0);
}

TEST_CASE("a state of another plan, or a part of one, is refused and changes nothing") {
  Fixture f;
  CorrelatedMechanism mechanism(banded_plan(), SecretRandom::insecure_seeded(6));
  PlannedEpochs sampler(Sampling::planned, 6, 3);
  const auto fresh = mechanism.state();
  for (int t = 0; t < 2; ++t) f.release(mechanism, sampler);
  const auto state = mechanism.state();
  NoisePlan noisier = banded_plan(), farther = banded_plan();
  noisier.noise_multiplier = 1.8;
  farther.min_separation = 4;
  const NoisePlan wider = plan_of(StrategyMatrix(BandedToeplitz{{1, 0.5, 0.1}}, 6));
  for (const NoisePlan& other : {noisier, farther, banded_plan(7), wider})
    CHECK_THROWS_AS(CorrelatedMechanism(other).load_state(state), std::invalid_argument);
  for (const auto& [name, tensor] : state) {
    auto missing = state;
    missing.erase(name);
    CAPTURE(name);
    CHECK_THROWS_AS(mechanism.load_state(missing), std::invalid_argument);
    missing[name] = Tensor();
    CHECK_THROWS_AS(mechanism.load_state(missing), std::invalid_argument);
  }
  CHECK(mechanism.steps_made() == 2);
  CHECK_NOTHROW(f.release(mechanism, sampler));
  mechanism.load_state(fresh);
  CHECK(mechanism.steps_made() == 0);
}

TEST_CASE("scales without a grid are an error, and nothing is released") {
  Fixture f;
  NoisePlan plan = plan_of(StrategyMatrix(TreeFactor{}, 64));
  const auto refuse = [&] {
    CorrelatedMechanism mechanism(plan);
    PlannedEpochs sampler(Sampling::planned, 64, 3);
    f.check_refused(mechanism, sampler);
  };
  plan.noise_multiplier = 1e30;
  refuse();
  // Within a factor of 2 of the maximum for fresh noise; step 31's noise is sqrt 6 times that.
  plan.noise_multiplier = 1;
  while (noise_grid(plan, bound, elements).stddev < RoundedGaussian::stddev_limit / 2)
    plan.noise_multiplier *= 2;
  refuse();
}

// A seeded generator does not work in the child of a fork.
TEST_CASE("after a release that broke off there is neither another nor a state") {
  CorrelatedMechanism mechanism(banded_plan(), SecretRandom::insecure_seeded(9));
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    Fixture f;
    PlannedEpochs sampler(Sampling::planned, 6, 3);
    int refusals = 0;
    const auto refused = [&](const auto& call) {
      try {
        call();
      } catch (const std::invalid_argument&) {
        ++refusals;
      }
    };
    refused([&] { f.release(mechanism, sampler); });  // recorded, but no noise
    const std::int64_t releases = f.ledger.releases();
    refused([&] { f.release(mechanism, sampler); });
    refused([&] { mechanism.state(); });
    _exit(refusals == 3 && releases == 1 && f.ledger.releases() == 1 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace
}  // namespace sotto
