// File tags: [sanitized]
#include "dp/accounting/calibration.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "dp/accounting/analytic_gaussian.h"
#include "dp/accounting/pld/pld_accountant.h"
#include "dp/accounting/rdp/rdp_accountant.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

PrivacyTarget sampled(double epsilon, double delta, double q, std::int64_t steps = 1) {
  return {epsilon, delta, {.sampling = Sampling::poisson, .sampling_rate = q}, steps};
}

const AccountantFactory rdp = accountant_factory(AccountantKind::rdp);

AccountantFactory by_orders(std::vector<double> orders) {
  return [orders = std::move(orders)] { return std::make_unique<RdpAccountant>(orders); };
}

double spent(double sigma, const PrivacyTarget& target) {
  RdpAccountant accountant;
  accountant.compose({sigma, Sampling::poisson, target.batch.sampling_rate}, target.steps);
  return accountant.epsilon(target.delta);
}

const std::vector<PrivacyTarget> targets = {sampled(1, 1e-5, 0.01, 1000),
                                            sampled(3, 1e-5, 256.0 / 60000, 14040),
                                            sampled(8, 1e-5, 4096.0 / 50000, 2000),
                                            sampled(50, 1e-5, 0.02, 1000),
                                            sampled(0.01, 1e-5, 0.1, 100),
                                            sampled(0.1, 1e-9, 1, 1),
                                            sampled(2, 0.3, 0.5, 10),
                                            sampled(1e-4, 1e-5, 0.001, 10),
                                            sampled(300, 1e-6, 0.3, 7)};

}  // namespace

TEST_CASE("calibrated noise meets the target for its steps; less noise or more steps do not") {
  for (const PrivacyTarget& target : targets) {
    CAPTURE(target.epsilon, target.delta, target.batch.sampling_rate, target.steps);
    const double sigma = calibrate_noise_multiplier(target, rdp);
    CHECK(spent(sigma, target) <= target.epsilon);
    CHECK(spent(sigma * (1 - 1e-6), target) > target.epsilon);
    if (target.steps > 100) continue;  // the search takes longer
    CHECK(max_steps(sigma, target, rdp) == target.steps);
    CHECK(max_steps(sigma * 0.999, target, rdp) < target.steps);
  }
}

TEST_CASE("calibrated noise is at most the published one") {
  const std::vector<std::pair<PrivacyTarget, double>> table = {
      {sampled(1, 1e-5, 0.01, 1000), 1.513122},
      {sampled(3, 1e-5, 256.0 / 60000, 14040), 1.013537},
      {sampled(3, 1e-5, 512.0 / 60000, 4680), 1.122887},
      {sampled(3, 1e-5, 1024.0 / 50000, 1440), 1.392231},
      {sampled(1, 1e-5, 4096.0 / 50000, 875), 9.889561},
      {sampled(8, 1e-5, 4096.0 / 50000, 2000), 2.467064},
      {sampled(1, 1e-6, 0.1, 512), 10.364128}};
  for (const auto& [target, published] : table) {
    const double sigma = calibrate_noise_multiplier(target, rdp);
    CHECK(sigma <= published + 1e-5);
    CHECK(sigma >= published * 0.995);
  }
}

TEST_CASE("noise calibrated by losses meets the target and is near the published one") {
  const std::vector<std::pair<PrivacyTarget, double>> table = {
      {sampled(1, 1e-5, 0.01, 1000), 1.414631},
      {sampled(3, 1e-5, 256.0 / 60000, 14040), 0.967991},
      {sampled(8, 1e-5, 4096.0 / 50000, 2000), 2.328895},
      {sampled(1, 1e-6, 0.1, 512), 9.661829}};
  for (const auto& [target, published] : table) {
    CAPTURE(target.epsilon, target.steps);
    const double sigma = calibrate_noise_multiplier(target);
    PldAccountant spent;
    Event event = target.batch;
    event.noise_multiplier = sigma;
    spent.compose(event, target.steps);
    CHECK(spent.epsilon(target.delta) <= target.epsilon);
    CHECK(spent.epsilon(target.delta, Bound::lower) >= target.epsilon * (1 - 6e-4));
    CHECK(sigma == Approx(published).epsilon(2e-4));
    CHECK(sigma < calibrate_noise_multiplier(target, rdp));
  }
}

// Noise, then steps and rate for that noise, for each supported sampling.
TEST_CASE("noise, steps and rate are calibrated for every sampling that has a proof", "[gate]") {
  const std::vector<Event> batches = {{0},
                                      {0, Sampling::poisson, 0.02},
                                      {0, Sampling::truncated_poisson, 0.02, 1, false, 1e-10},
                                      {0, Sampling::fixed_size, 0.02},
                                      {0, Sampling::partition, 1, 30},
                                      {0, Sampling::balls_and_bins, 1, 30},
                                      {0, Sampling::cyclic_poisson, 0.1, 30},
                                      {0, Sampling::planned, 1, 30}};
  for (const AccountantKind kind : {AccountantKind::pld, AccountantKind::rdp}) {
    for (const NeighboringRelation relation :
         {NeighboringRelation::add_or_remove_one, NeighboringRelation::replace_one}) {
      for (const Event& batch : batches) {
        const bool others = batch.sampling == Sampling::truncated_poisson ||
                            batch.sampling == Sampling::cyclic_poisson;
        if (others && relation == NeighboringRelation::replace_one) continue;  // as Poisson batches
        const AccountantFactory fresh = accountant_factory(kind, relation);
        const PrivacyTarget target{2, 1e-6, batch, 61};  // three epochs of 30 batches
        CAPTURE(name(kind), name(batch.sampling), relation == NeighboringRelation::replace_one);
        if (!unsupported_reason(kind, batch.sampling, relation).empty()) {
          CHECK_THROWS_AS(calibrate_noise_multiplier(target, fresh), std::invalid_argument);
          continue;
        }
        const std::int64_t passes = (60 + batch.batches) / batch.batches;
        const auto spent = [&](double sigma, double rate, std::int64_t count) {
          const auto accountant = fresh();
          Event event = batch;
          event.noise_multiplier = sigma;
          event.sampling_rate = rate;
          accountant->compose(event, count);
          return accountant->epsilon(1e-6);
        };
        const double sigma = calibrate_noise_multiplier(target, fresh);
        CHECK(spent(sigma, batch.sampling_rate, passes) <= 2);
        CHECK(spent(sigma * (1 - 1e-4), batch.sampling_rate, passes) > 2);
        CHECK(max_steps(sigma, target, fresh) == passes * batch.batches);
        if (!has_rate(batch.sampling)) continue;
        const double rate = max_sampling_rate(sigma, target, fresh);
        CHECK(rate == Approx(batch.sampling_rate).epsilon(1e-4));
        CHECK(spent(sigma, rate, passes) <= 2);
        CHECK(spent(sigma, rate * (1 + 1e-4), passes) > 2);
      }
    }
  }
}

TEST_CASE("the largest sampling rate has its limits", "[gate]") {
  CHECK(max_sampling_rate(1000, sampled(1, 1e-5, 0.1, 10), rdp) == 1);
  CHECK(max_sampling_rate(0.1, sampled(1, 1e-5, 0.1, 0), rdp) == 1);
  const double min = max_sampling_rate(0.1, sampled(1, 1e-5, 0.1, 100));
  CHECK(min > 1e-8);
  CHECK(min < 1e-6);
  CHECK_THROWS_WITH(max_sampling_rate(0, sampled(1, 1e-5, 0.1), rdp),
                    "max_sampling_rate: epsilon 1 at delta 1e-05 is out of reach of the rdp "
                    "accountant");
  CHECK_THROWS_WITH(max_sampling_rate(1, {1, 1e-5, {0}, 10}),
                    "max_sampling_rate: full_batch batches have no sampling rate");
  CHECK_THROWS_AS(max_sampling_rate(-1, sampled(1, 1e-5, 0.1)), std::invalid_argument);
}

TEST_CASE("two releases on one batch are one, and either part is found from the other") {
  CHECK(joint_noise_multiplier(3, 4) == Approx(2.4).epsilon(1e-15));
  for (const double one : {1e-200, 0.3, 1.0, 1e200}) {
    for (const double other : {0.5, 2.0, 1e9}) {
      const double joint = joint_noise_multiplier(one, other);
      CHECK(joint == joint_noise_multiplier(other, one));
      CHECK(joint <= std::min(one, other));
      if (joint < 0.99 * one)
        CHECK(other_noise_multiplier(joint, one) == Approx(other).epsilon(1e-13));
    }
  }
  // Both releases together spend as much as the joint one.
  RdpAccountant two, joint;
  two.compose({1.2}, 5);
  two.compose({8}, 5);
  joint.compose({joint_noise_multiplier(1.2, 8)}, 5);
  CHECK(two.epsilon(1e-5) == Approx(joint.epsilon(1e-5)).epsilon(1e-12));
  CHECK(joint_noise_multiplier(0, 3) == 0);
  CHECK(joint_noise_multiplier(infinity, 3) == 3);
  CHECK(other_noise_multiplier(0, 3) == 0);
  CHECK(other_noise_multiplier(2, infinity) == 2);
  CHECK_THROWS_AS(other_noise_multiplier(3, 3), std::invalid_argument);
  CHECK_THROWS_AS(other_noise_multiplier(-1, 3), std::invalid_argument);
  CHECK_THROWS_AS(joint_noise_multiplier(1, -1), std::invalid_argument);
  CHECK_THROWS_AS(joint_noise_multiplier(std::nan(""), 1), std::invalid_argument);
}

TEST_CASE("noise on counts is calibrated to what the gradients leave of the target") {
  const PrivacyTarget target = sampled(1, 1e-5, 0.01, 1000);
  for (const std::int64_t groups : {1, 9}) {
    const double stddev = calibrate_count_noise(1.6, groups, target, rdp);
    const auto together = [&](double noise) {  // for counts that a unit changes by 1/2 each
      return joint_noise_multiplier(1.6, 2 * noise / std::sqrt(static_cast<double>(groups)));
    };
    CHECK(spent(together(stddev), target) <= target.epsilon);
    CHECK(spent(together(stddev * (1 - 1e-4)), target) > target.epsilon);
  }
  CHECK_THROWS_AS(calibrate_count_noise(1.6, 0, target, rdp), std::invalid_argument);
  CHECK_THROWS_AS(calibrate_count_noise(1.5, 1, target, rdp), std::invalid_argument);
}

TEST_CASE("the number of steps has its limits") {
  CHECK(max_steps(0, sampled(1, 1e-5, 0.1), rdp) == 0);
  CHECK(max_steps(0.1, sampled(1, 1e-5, 1), rdp) == 0);
  CHECK(max_steps(1e12, sampled(1, 1e-5, 1e-6), rdp) == std::int64_t{1} << 53);
}

TEST_CASE("no steps need no noise") {
  CHECK(calibrate_noise_multiplier(sampled(1, 1e-5, 0.1, 0)) == 0);
  CHECK(gaussian_noise_multiplier(1, 1e-5, 0) == 0);
}

TEST_CASE("targets from the smallest to the largest are answered after few compositions") {
  for (const double epsilon : {5e-324, 1e-300, 1e-12, 1.0, 1e4}) {
    for (const double given : {5e-324, 1e-300, 1e-5, 0.9}) {
      CAPTURE(epsilon, given);
      int made = 0;
      const AccountantFactory counted = [&] {
        ++made;
        return rdp();
      };
      const PrivacyTarget target = sampled(epsilon, given, 0.1, 10);
      try {
        const std::int64_t steps = max_steps(30, target, counted);
        CHECK(steps >= 0);
        const double noise = calibrate_noise_multiplier(target, counted);
        CHECK(noise > 0);
        const double rate = max_sampling_rate(30, target, counted);
        CHECK(rate > 0);
      } catch (const std::invalid_argument& error) {
        CHECK(std::string(error.what()).find("is out of reach of the rdp accountant") !=
              std::string::npos);
      }
      CHECK(made < 150);
    }
  }
}

TEST_CASE("a target out of reach or out of range is an error") {
  const double nan = std::nan("");
  CHECK_THROWS_WITH(calibrate_noise_multiplier(sampled(0.1, 1e-12, 0.1, 10), by_orders({2, 3})),
                    "calibrate_noise_multiplier: epsilon 0.1 at delta 1e-12 is out of reach of the "
                    "rdp accountant");
  for (const PrivacyTarget& wrong : std::vector<PrivacyTarget>{
           sampled(0, 1e-5, 0.1, 1), sampled(-1, 1e-5, 0.1, 1), sampled(nan, 1e-5, 0.1, 1),
           sampled(infinity, 1e-5, 0.1, 1), sampled(1e308, 1e-5, 0.1, 1), sampled(1, 0, 0.1, 1),
           sampled(1, 1, 0.1, 1), sampled(1, nan, 0.1, 1), sampled(1, 1e-5, 0, 1),
           sampled(1, 1e-5, 1.1, 1), sampled(1, 1e-5, nan, 1), sampled(1, 1e-5, 0.1, -1)}) {
    CHECK_THROWS_AS(calibrate_noise_multiplier(wrong), std::invalid_argument);
    CHECK_THROWS_AS(max_steps(1, wrong), std::invalid_argument);
  }
  const Event later{0, Sampling::planned, 1, 30, true};
  CHECK_THROWS_AS(calibrate_noise_multiplier({1, 1e-5, later, 60}), std::invalid_argument);
  CHECK_THROWS_WITH(max_steps(1, {1, 1e-5, {0, Sampling::balls_and_bins, 1, 30}, 60}),
                    "max_steps: the pld accountant has no proof for balls_and_bins batches and "
                    "add_or_remove_one; rdp has one");
  CHECK_THROWS_AS(max_steps(-1, {}), std::invalid_argument);
  CHECK_THROWS_AS(max_steps(nan, {}), std::invalid_argument);
  CHECK_THROWS_AS(calibrate_noise_multiplier({}, by_orders({})), std::invalid_argument);
  CHECK_THROWS_AS(calibrate_noise_multiplier({}, AccountantFactory()), std::invalid_argument);
}

TEST_CASE("the exact Gaussian agrees with published epsilon") {
  struct Row {
    double sigma;
    std::array<double, 3> epsilon;
  };
  const std::vector<Row> table = {{0.5, {7.581279925, 9.997256146, 12.749246400}},
                                  {0.7, {4.907861983, 6.652487890, 8.632729689}},
                                  {1, {3.138670549, 4.377178096, 5.776098383}},
                                  {2, {1.352276245, 1.993091404, 2.707606334}},
                                  {3, {0.833528102, 1.271087767, 1.754280505}},
                                  {5, {0.453920156, 0.725521751, 1.021170615}},
                                  {10, {0.197533973, 0.340669365, 0.492850365}}};
  const std::array deltas = {1e-3, 1e-5, 1e-8};
  for (const Row& row : table) {
    for (std::size_t i = 0; i < deltas.size(); ++i) {
      CHECK(std::abs(gaussian_epsilon(row.sigma, deltas[i]) - row.epsilon[i]) < 1e-9);
      CHECK(gaussian_epsilon(row.sigma * 4, deltas[i], 16) ==
            Approx(gaussian_epsilon(row.sigma, deltas[i])).epsilon(1e-12));
    }
  }
}

TEST_CASE("the exact Gaussian agrees with published noise") {
  struct Row {
    double epsilon;
    std::array<double, 3> sigma;
  };
  const std::vector<Row> table = {{0.1, {17.404396203, 30.749566132, 45.937360185}},
                                  {0.5, {4.610127951, 7.031826676, 9.863533796}},
                                  {1, {2.574657019, 3.730631635, 5.100308788}},
                                  {2, {1.445239161, 1.993812446, 2.652926768}},
                                  {4, {0.823077685, 1.081161850, 1.395582684}},
                                  {8, {0.480013752, 0.600229072, 0.748394225}}};
  const std::array deltas = {1e-3, 1e-5, 1e-8};
  for (const Row& row : table) {
    for (std::size_t i = 0; i < deltas.size(); ++i) {
      const double sigma = gaussian_noise_multiplier(row.epsilon, deltas[i]);
      CHECK(std::abs(sigma - row.sigma[i]) < 1e-9);
      CHECK(gaussian_delta(sigma, row.epsilon) <= deltas[i] * (1 + 1e-11));
    }
  }
  CHECK(std::abs(gaussian_noise_multiplier(1, 6.486452831e-47) - 14) < 1e-4);
}

TEST_CASE("the exact Gaussian has its limits") {
  CHECK(gaussian_delta(1, 0) == Approx(std::erf(0.5 / std::sqrt(2.0))).epsilon(1e-14));
  CHECK(gaussian_delta(50, 0) == Approx(std::erf(0.01 / std::sqrt(2.0))).epsilon(1e-12));
  CHECK(gaussian_delta(0, 3) == 1);
  CHECK(gaussian_delta(1e-3, 3) == 1);
  CHECK(gaussian_delta(1, 3, 0) == 0);
  CHECK(gaussian_epsilon(0, 1e-5) == infinity);
  CHECK(gaussian_epsilon(50, 0.01) == 0);
  CHECK(gaussian_epsilon(1, 1e-5, 0) == 0);
  CHECK(gaussian_epsilon(1, 1e-300) > gaussian_epsilon(1, 1e-290));
  CHECK_THROWS_AS(gaussian_epsilon(-1, 1e-5), std::invalid_argument);
  CHECK_THROWS_AS(gaussian_epsilon(1, 0), std::invalid_argument);
  CHECK_THROWS_AS(gaussian_delta(1, -1), std::invalid_argument);
  CHECK_THROWS_AS(gaussian_delta(1, 1, -1), std::invalid_argument);
  CHECK_THROWS_AS(gaussian_noise_multiplier(std::nan(""), 1e-5), std::invalid_argument);
}
