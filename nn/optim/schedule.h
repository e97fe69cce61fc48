// Learning rates, and for one_cycle the momentum, as functions of the step index k = 0, 1, ... A
// schedule has no state: resuming needs the step index only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace sotto::nn {

// Options of Schedule::one_cycle (Smith and Topin 2019).
struct OneCycle {
  double max_rate = 0;           // the largest rate
  std::int64_t total_steps = 0;  // length of the cycle
  double rise = 0.3;             // fraction of all steps during which the rate rises
  bool cosine = true;            // cosine annealing, otherwise linear
  double start_divisor = 25;     // the first rate is max_rate / start_divisor
  double final_divisor = 1e4;    // the last rate is the first / final_divisor
  // With three phases the rate falls to the first rate in as many steps as it rose, then to the
  // last rate in the remaining ones.
  bool three_phase = false;
  bool cycle_momentum = true;   // momentum moves against the rate
  double base_momentum = 0.85;  // at the maximum rate
  double max_momentum = 0.95;   // at both ends
};

// A learning-rate schedule. Pass it to Optimizer::follow() before each step. Every factory throws
// std::invalid_argument for a length below 1 and for negative rates or factors.
//
//   optimizer.follow(Schedule::warmup_cosine(100, 2000), step);
class Schedule {
 public:
  // Any function of the step and the base rate.
  using Rate = std::function<double(std::int64_t step, double base)>;
  explicit Schedule(Rate rate) : rate_(std::move(rate)) {}

  // The learning rate at a step. Throws std::invalid_argument for a negative step.
  double value(std::int64_t step, double base) const;
  // The momentum (beta1 of Adam) at a step; nullopt if the schedule does not change it.
  std::optional<double> momentum(std::int64_t step) const;

  // The schedule applied to epochs: its value at epoch floor(k / steps_of_epoch).
  static Schedule by_epoch(const Schedule& schedule, std::int64_t steps_of_epoch);
  // base gamma^floor(k / length)
  static Schedule step(std::int64_t length, double gamma);
  // base gamma^(number of milestones <= k)
  static Schedule multistep(std::vector<std::int64_t> milestones, double gamma);
  // base gamma^k
  static Schedule exponential(double gamma);
  // low + (base - low) (1 + cos(pi k / length)) / 2, which rises again after `length` steps
  // (Loshchilov and Hutter 2017, equation 5)
  static Schedule cosine(std::int64_t length, double low = 0);
  // The cosine schedule, restarted after each cycle; every cycle is `growth` times as long as the
  // one before.
  static Schedule cosine_restarts(std::int64_t length, std::int64_t growth = 1, double low = 0);
  // base times a factor that goes linearly from `start` to `end` in `length` steps and stays there
  static Schedule linear(double start, double end, std::int64_t length);
  // base factor for the first `length` steps, then base
  static Schedule constant(double factor, std::int64_t length);
  // base (1 - min(k, length) / length)^power
  static Schedule polynomial(std::int64_t length, double power = 1);
  // Ignores the base rate (Smith and Topin 2019). Steps after the last keep its rate.
  static Schedule one_cycle(const OneCycle& cycle);

  // base min(1, (k + 1) / warmup)
  static Schedule warmup_linear(std::int64_t warmup);
  // Warms up linearly (warmup 0: not at all), then falls along half a cosine to base `end` at step
  // `total`.
  static Schedule warmup_cosine(std::int64_t warmup, std::int64_t total, double end = 0);
  // Warms up linearly, then falls linearly to zero at step `total`.
  static Schedule warmup_linear_decay(std::int64_t warmup, std::int64_t total);
  // base min((k + 1) / warmup, sqrt(warmup / (k + 1)))
  static Schedule inverse_sqrt(std::int64_t warmup);

 private:
  Rate rate_;
  std::function<double(std::int64_t)> momentum_;
};

}  // namespace sotto::nn
