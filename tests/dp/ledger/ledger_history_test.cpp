// Planned and adaptive histories of a ledger, with what is proved for each, and handles of a run.
#include <cmath>
#include <random>
#include <thread>

#include "dp/accounting/adaptive_accountant.h"
#include "dp/accounting/budget.h"
#include "dp/accounting/ledger_epsilon.h"
#include "dp/clipping/clipper.h"
#include "dp/ledger/ledger.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/sampling/poisson_samplers.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/epsilon_of.h"
#include "tests/support/ledger_files.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

void record(Ledger& ledger, const Event& event, int times) {
  for (int i = 0; i < times; ++i) ledger.record(event, ledger.next_draw());
}

double adaptive(const EventCounts& releases) { return epsilon_of(releases, AdaptiveAccountant()); }

}  // namespace

// The loss of the first release decides which second one is worse for it: the true epsilon at 1e-5
// is 2.311, but each history by itself costs 1.99 and 2.001.
TEST_CASE("a second release that the first one chose costs what the choice costs") {
  const Event first{.noise_multiplier = 2.5};
  for (const Event& second :
       {Event{.noise_multiplier = 0.16947, .sampling = Sampling::poisson, .sampling_rate = 1.38e-5},
        Event{.noise_multiplier = 3.30492}}) {
    Ledger ledger;
    record(ledger, first, 1);
    CHECK_FALSE(ledger.history().adaptive);
    CHECK(epsilon(ledger, delta) == Approx(pld({{first, 1}})));
    record(ledger, second, 1);
    CHECK(ledger.history().adaptive);
    CHECK(epsilon(ledger, delta) >= 2.311);
    CHECK(epsilon(ledger, delta) == adaptive({{first, 1}, {second, 1}}));
  }
}

// The three were planned together, but it was not fixed which of the two follows the first.
TEST_CASE("the released part of several plans costs what all of them cost") {
  const Event first{.noise_multiplier = 2.5};
  const EventCounts others{
      {{.noise_multiplier = 0.16947, .sampling = Sampling::poisson, .sampling_rate = 1.38e-5}, 1},
      {{.noise_multiplier = 3.30492}, 1}};
  const EventCounts all{{first, 1}, others[0], others[1]};
  const auto budget = [](const Ledger& ledger, std::optional<double> target) {
    return Budget(ledger, accountant_factory(AccountantKind::pld), delta, target);
  };
  for (const std::size_t chosen : {0, 1}) {
    Ledger ledger;
    std::vector<Ledger> runs = {ledger.new_run(), ledger.new_run()};
    ledger.plan({{first, 1}});
    for (std::size_t k = 0; k < 2; ++k) CHECK(runs[k].plan({others[k]}));
    CHECK(epsilon(ledger, delta) == 0);
    record(ledger, first, 1);
    CHECK(epsilon(ledger, delta) == Approx(pld(all)));
    CHECK(budget(runs[chosen], pld(all) + 1e-6).allows_after({others[chosen]}));
    CHECK_FALSE(budget(runs[chosen], 2.01).allows_after({others[chosen]}));
    record(runs[chosen], others[chosen].first, 1);
    CHECK(ledger.history().whole_plan);
    CHECK_FALSE(ledger.history().adaptive);
    CHECK(epsilon(ledger, delta) == Approx(pld(all)));
    CHECK(pld(all) >= 2.311);
    CHECK(budget(ledger, {}).epsilon() == Approx(pld(all)));
    const Budget small = budget(ledger, 2.01);
    CHECK(small.history().adaptive);
    CHECK(small.epsilon() >= 2.311);
    CHECK(small.epsilon_planned() == Approx(pld(all)));
  }
}

TEST_CASE("a target below the cost of all plans admits what its filter proves") {
  const Event first{.noise_multiplier = 2.5};
  Ledger ledger;
  const Ledger other = ledger.new_run();
  CHECK(ledger.plan({{first, 1}}));
  CHECK(Ledger(other).plan({{everybody, 1000}}));
  const auto budget = [](const Ledger& of, double target) {
    return Budget(of, accountant_factory(AccountantKind::pld), delta, target);
  };
  CHECK(pld({{first, 1}, {everybody, 1000}}) > 10);
  CHECK(budget(ledger, 10).allows_after({{first, 1}}));
  CHECK_FALSE(budget(other, 10).allows_after({{everybody, 1000}}));
  CHECK_FALSE(budget(ledger, pld({{first, 1}})).allows_after({{first, 1}}));
}

TEST_CASE("releases in the order of one run's plan cost their own epsilon, in another all of it") {
  Event first{.noise_multiplier = 3, .sampling = Sampling::partition, .batches = 2};
  Event paid = first;
  paid.paid = true;
  const EventCounts plan{{sampled, 5}, {first, 1}, {paid, 1}, {everybody, 2}};
  const auto whole = [&](const EventCounts& releases) {
    Ledger ledger;
    ledger.plan(plan);
    return ledger.history_after(releases).whole_plan;
  };
  CHECK_FALSE(whole({}));
  CHECK_FALSE(whole({{sampled, 4}}));
  CHECK_FALSE(whole({{sampled, 5}, {first, 1}, {paid, 1}, {everybody, 1}}));
  // the paid batch is part of the first
  CHECK_FALSE(whole({{sampled, 5}, {first, 1}, {everybody, 1}}));
  CHECK_FALSE(whole(plan));
  CHECK(whole({{sampled, 4}, {first, 1}}));
  CHECK(whole({{sampled, 5}, {everybody, 1}}));
  CHECK(whole({{everybody, 1}}));
}

TEST_CASE("releases within a plan that was written before are accounted as planned") {
  Ledger ledger;
  CHECK(ledger.plan({{everybody, 9}}));
  CHECK(ledger.plan({{sampled, 20}, {everybody, 2}}));  // instead of the first
  record(ledger, sampled, 20);
  record(ledger, everybody, 2);
  CHECK_FALSE(ledger.history().adaptive);
  CHECK(ledger.history().plans == EventCounts{{sampled, 20}, {everybody, 2}});
  CHECK(epsilon(ledger, delta) == pld({{sampled, 20}, {everybody, 2}}));
  CHECK(ledger.history_after({{sampled, 1}}).adaptive);
  record(ledger, everybody, 1);
  CHECK(ledger.history().adaptive);
  CHECK_FALSE(ledger.history().within_plans);
}

TEST_CASE("a plan after a release of any run is not accepted") {
  Ledger first;
  Ledger second = first.new_run();
  record(first, sampled, 1);
  CHECK_FALSE(second.plan({{everybody, 1}}));
  record(second, everybody, 1);
  CHECK(first.history().adaptive);
  CHECK(epsilon(second, delta) == adaptive({{sampled, 1}, {everybody, 1}}));
}

TEST_CASE("runs that are planned before any of them releases are planned together") {
  const Place place;
  for (Ledger first : {Ledger(), Ledger::create(place.path(), {}, 4)}) {
    Ledger second = first.new_run();
    CHECK(first.plan({{sampled, 10}}));
    CHECK(second.plan({{everybody, 3}}));
    record(first, sampled, 6);
    record(second, everybody, 3);
    first.settle();
    first.set_population(100);
    CHECK_FALSE(first.history().adaptive);
    CHECK(first.history().plans == EventCounts{{sampled, 10}, {everybody, 3}});
    CHECK(epsilon(first, delta) == pld({{sampled, 10}, {everybody, 3}}));
  }
  const Ledger again = Ledger::open(place.path());
  CHECK_FALSE(again.history().adaptive);
  CHECK(again.releases() == 9);
}

TEST_CASE("a reservation is no larger than the rest of the plan") {
  const Place place;
  Ledger ledger = Ledger::create(place.path(), {}, 16);
  ledger.plan({{sampled, 18}, {everybody, 1}});
  record(ledger, sampled, 17);
  CHECK(Ledger::open(place.path()).releases() == 18);
  record(ledger, everybody, 1);
  CHECK_FALSE(ledger.history().adaptive);
}

TEST_CASE("releases of one kind are planned without a plan, others are not") {
  const std::string version_3 = R"({"sotto_ledger":3,"id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",)"
                                R"("unit":"u","relation":"add or remove one"})";
  const auto history = [](const std::vector<std::string>& lines) {
    return parse_ledger(file_of(lines), "f").contents.history();
  };
  CHECK_FALSE(history({version_3, reserve(5, 0), reserve(9, 5)}).adaptive);
  CHECK(history({version_3, reserve(5, 0), reserve(9, 5, everybody)}).adaptive);
  const Event first{.noise_multiplier = 2, .sampling = Sampling::partition, .batches = 3};
  Event paid = first;
  paid.paid = true;
  CHECK_FALSE(history({header, reserve(1, 0, first), reserve(2, 1, paid)}).adaptive);
}

TEST_CASE("plans in a file are checked") {
  const LedgerRun run{some_run, {}, 0, {}};
  const std::string plan = plan_line(run, {{sampled, 7}, {everybody, 1}});
  const LedgerContents read = parse_ledger(file_of({header, plan}), "f").contents;
  CHECK(read.runs.at(0).plan == EventCounts{{sampled, 7}, {everybody, 1}});
  const auto refused = [](const std::vector<std::string>& lines, const std::string& text) {
    return throws<SystemFailure>([&] { parse_ledger(file_of(lines), "f"); }, text);
  };
  CHECK(refused({header, reserve(1, 0), plan}, "f:3: a plan after 1 releases"));
  CHECK(refused({header, plan_line(run, {})}, "plan is no list of releases"));
  CHECK(refused({header, plan_line(run, {{sampled, 0}})}, "f:2: a plan of 0 releases"));
}

TEST_CASE("the epsilon proved for any choice is above that proved for none") {
  for (const double noise : {0.7, 1.0, 3.0}) {
    for (const std::int64_t steps : {1, 100, 5000}) {
      const EventCounts some{{{noise, Sampling::poisson, 0.004}, steps}, {{20.0}, 3}};
      const double epsilon = adaptive(some), rdp = epsilon_of(some, RdpAccountant());
      const double of_plan =
          epsilon_of(some, AdaptiveAccountant(NeighboringRelation::add_or_remove_one, some));
      CAPTURE(noise, steps, epsilon, rdp);
      CHECK(rdp > pld(some));
      CHECK(epsilon < 1.75 * rdp);
      CHECK(of_plan > rdp);
      CHECK(of_plan < 1.25 * rdp);
      CHECK(of_plan < epsilon);
      CHECK(throws([&] { AdaptiveAccountant().delta(epsilon); }, "no delta for an epsilon"));
    }
  }
  CHECK(adaptive({}) == 0);
  CHECK(std::isinf(adaptive({{{.noise_multiplier = 0}, 1}})));
}

// delta = E[(1 - e^(epsilon - loss))_+] at an end chosen by the loss: a walk of Gaussian losses
// stops where it exceeds its epsilon.
TEST_CASE("an end that is chosen by looking is within delta") {
  constexpr double sigma = 3, loose = 0.05;
  constexpr int walks = 4000;
  std::vector<double> bounds;
  AdaptiveAccountant accountant;
  for (int k = 0; k < 60; ++k) {
    accountant.compose({.noise_multiplier = sigma});
    bounds.push_back(accountant.epsilon(loose));
  }
  std::mt19937 random(1);
  std::normal_distribution<double> normal(0.5 / (sigma * sigma), 1 / sigma);
  double excess = 0;
  for (int walk = 0; walk < walks; ++walk) {
    double loss = 0;
    for (const double bound : bounds) {
      loss += normal(random);
      if (loss <= bound) continue;
      excess += 1 - std::exp(bound - loss);
      break;
    }
  }
  CHECK(excess / walks < loose);
}

TEST_CASE("a handle that was moved from is empty, and the run continues with the copies") {
  Ledger ledger;
  Ledger copy = ledger;
  record(ledger, sampled, 2);
  Ledger moved = std::move(ledger);
  record(copy, sampled, 1);
  CHECK(moved.releases() == 3);
  CHECK(throws([&] { record(ledger, sampled, 1); }, "ledger: this handle was moved from"));
}

TEST_CASE("runs in threads share a ledger in memory, and a budget") {
  const Ledger ledger;
  constexpr std::int64_t each = 200, max = 700;
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([run = ledger.new_run()]() mutable {
      try {
        for (std::int64_t i = 0; i < each; ++i) {
          run.record(sampled, run.next_draw(),
                     [](const History& after) { return total_releases(after.events) <= max; });
        }
      } catch (const std::invalid_argument&) {
        // The budget is spent.
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(ledger.releases() == max);
}

TEST_CASE("a batch of another population than the ledger's is refused") {
  Parameter weight(zeros({3}));
  Clipper clipper({{{&weight}, 1}});
  GaussianMechanism mechanism(1);
  Ledger ledger;
  PoissonSampler small(50, 0.5), large(5000, 0.005);
  const auto release = [&](Sampler& sampler) {
    sampler.resume_from(ledger.next_draw());
    SampledBatch draw = sampler.draw();
    CHECK(draw.population() == sampler.population());
    clipper.begin(draw);
    clipper.add_zeros(std::ssize(draw.units()));
    mechanism.release(clipper.finish(std::move(draw)), ledger);
  };
  release(small);
  CHECK(ledger.population() == 50);
  CHECK(throws([&] { release(large); }, "a population of 5000, where an earlier run said 50"));
  CHECK(ledger.releases() == 1);
}

}  // namespace sotto
