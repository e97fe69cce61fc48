#include "nn/optim/schedule.h"

#include <cmath>
#include <numbers>

#include "tests/support/catch.h"
#include "tests/support/throws.h"

using sotto::nn::OneCycle;
using sotto::nn::Schedule;

namespace {

// Checks the rates of the first steps from a base rate.
void check_rates(const Schedule& schedule, double base, const std::vector<double>& want) {
  for (std::size_t k = 0; k < want.size(); ++k) {
    CAPTURE(k);
    CHECK(schedule.value(static_cast<std::int64_t>(k), base) ==
          Approx(want[k]).epsilon(1e-12).margin(1e-15));
  }
  CHECK(throws([&] { schedule.value(-1, base); }, "schedule: step -1"));
}

}  // namespace

TEST_CASE("decay by steps, at milestones and at every step") {
  check_rates(Schedule::step(2, 0.5), 8, {8, 8, 4, 4, 2, 2, 1});
  check_rates(Schedule::multistep({1, 4}, 0.1), 1, {1, 0.1, 0.1, 0.1, 0.01, 0.01});
  check_rates(Schedule::multistep({4, 1, 1}, 0.1), 1, {1, 0.01, 0.01, 0.01, 0.001});
  check_rates(Schedule::exponential(0.5), 4, {4, 2, 1, 0.5});
}

TEST_CASE("a schedule by epochs changes between them") {
  check_rates(Schedule::by_epoch(Schedule::exponential(0.5), 3), 8, {8, 8, 8, 4, 4, 4, 2});
  CHECK(throws([] { Schedule::by_epoch(Schedule::exponential(0.5), 0); }, "by_epoch"));
  const OneCycle cycle{.max_rate = 1, .total_steps = 10};
  CHECK(Schedule::by_epoch(Schedule::one_cycle(cycle), 5).momentum(14) ==
        Schedule::one_cycle(cycle).momentum(2));
}

TEST_CASE("a cosine falls to its low and restarts in growing cycles") {
  check_rates(Schedule::cosine(4, 1), 3,
              {3, 2 + std::sqrt(0.5), 2, 2 - std::sqrt(0.5), 1, 2 - std::sqrt(0.5), 2});
  const double high = 0.75;
  const double low = 0.25;
  check_rates(Schedule::cosine_restarts(1, 3), 1, {1, 1, high, low, 1});
  check_rates(Schedule::cosine_restarts(2, 1), 1, {1, 0.5, 1, 0.5, 1, 0.5});
  check_rates(Schedule::cosine_restarts(2, 2), 1,
              {1, 0.5, 1, 0.5 + std::sqrt(0.125), 0.5, 0.5 - std::sqrt(0.125), 1});
}

TEST_CASE("restarts far out in large cycles do not overflow") {
  // The third cycle has 1.6e19 steps, more than 64 bits can count.
  const std::int64_t growth = 4'000'000'000;
  const double k = 0x1p62;
  CHECK(Schedule::cosine_restarts(1, growth).value(std::int64_t{1} << 62, 1) ==
        Approx((1 + std::cos(std::numbers::pi * (k - 4e9) / 1.6e19)) / 2).epsilon(1e-12));
}

TEST_CASE("linear, constant and polynomial schedules end and stay") {
  check_rates(Schedule::linear(0.5, 1, 2), 4, {2, 3, 4, 4, 4});
  check_rates(Schedule::constant(0.25, 2), 4, {1, 1, 4, 4});
  check_rates(Schedule::polynomial(4, 2), 16, {16, 9, 4, 1, 0, 0});
}

TEST_CASE("one cycle rises from a fraction, falls below it and stays") {
  const OneCycle linear{.max_rate = 10,
                        .total_steps = 6,
                        .rise = 0.5,
                        .cosine = false,
                        .start_divisor = 5,
                        .final_divisor = 2};
  check_rates(Schedule::one_cycle(linear), 99, {2, 6, 10, 7, 4, 1, 1});
  CHECK(*Schedule::one_cycle(linear).momentum(0) == Approx(0.95));
  CHECK(*Schedule::one_cycle(linear).momentum(2) == Approx(0.85));
  CHECK(*Schedule::one_cycle(linear).momentum(5) == Approx(0.95));
  OneCycle cosine = linear;
  cosine.cosine = true;
  cosine.cycle_momentum = false;
  check_rates(Schedule::one_cycle(cosine), 99, {2, 6, 10, 7.75, 3.25, 1});
  CHECK_FALSE(Schedule::one_cycle(cosine).momentum(0));
}

TEST_CASE("one cycle that rises for less than a step falls from the first on") {
  OneCycle cycle{.max_rate = 10,
                 .total_steps = 3,
                 .rise = 0.3,  // to step -0.1
                 .cosine = false,
                 .start_divisor = 5,
                 .final_divisor = 2};
  check_rates(Schedule::one_cycle(cycle), 99, {10 - 0.9 / 2.1, 10 - 9.9 / 2.1, 1});
  cycle.rise = 1.0 / 3;
  check_rates(Schedule::one_cycle(cycle), 99, {10, 5.5, 1});
  cycle.rise = 1;
  check_rates(Schedule::one_cycle(cycle), 99, {2, 6, 10});
}

TEST_CASE("one cycle in three phases returns to its first rate before it ends") {
  const OneCycle cycle{.max_rate = 10,
                       .total_steps = 8,
                       .rise = 0.375,
                       .cosine = false,
                       .start_divisor = 5,
                       .final_divisor = 4,
                       .three_phase = true};
  check_rates(Schedule::one_cycle(cycle), 99, {2, 6, 10, 6, 2, 1.5, 1, 0.5});
  CHECK(*Schedule::one_cycle(cycle).momentum(4) == Approx(0.95));
  CHECK(*Schedule::one_cycle(cycle).momentum(6) == Approx(0.95));
}

TEST_CASE("warm-ups reach the base rate with their last step") {
  check_rates(Schedule::warmup_linear(4), 8, {2, 4, 6, 8, 8});
  check_rates(Schedule::warmup_cosine(2, 6, 0.5), 4,
              {2, 4, 4, 3 + std::sqrt(0.5), 3, 3 - std::sqrt(0.5), 2, 2});
  check_rates(Schedule::warmup_linear_decay(2, 6), 4, {2, 4, 4, 3, 2, 1, 0, 0});
  check_rates(Schedule::warmup_linear_decay(0, 4), 4, {4, 3, 2, 1, 0, 0});
  CHECK(throws([] { Schedule::warmup_cosine(-1, 5); }, "warmup_cosine: warmup is -1"));
  check_rates(Schedule::inverse_sqrt(4), 8,
              {2, 4, 6, 8, 8 * std::sqrt(0.8), 8 * std::sqrt(4.0 / 6)});
}

TEST_CASE("any function can be a schedule") {
  check_rates(Schedule([](std::int64_t k, double base) { return base + static_cast<double>(k); }),
              1, {1, 2, 3});
}

TEST_CASE("schedules refuse options out of range") {
  CHECK(throws([] { Schedule::step(0, 0.5); }, "step: length is 0"));
  CHECK(throws([] { Schedule::exponential(-1); }, "exponential: gamma is -1"));
  CHECK(throws([] { Schedule::exponential(NAN); }, "exponential: gamma is nan"));
  CHECK(throws([] { Schedule::cosine_restarts(3, 0); }, "cosine_restarts: growth is 0"));
  CHECK(throws([] { Schedule::warmup_cosine(5, 5); }, "warmup_cosine: 5 steps with a warmup of 5"));
  CHECK(throws([] { Schedule::one_cycle({.max_rate = 1, .total_steps = 3, .rise = 1.5}); },
               "one_cycle: rise is 1.5, not a fraction of all steps"));
}
