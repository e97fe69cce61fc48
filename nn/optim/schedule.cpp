#include "nn/optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/error.h"

namespace sotto::nn {

namespace {

void check_length(const char* schedule, const char* what, std::int64_t length) {
  check(length >= 1, "{}: {} is {}", schedule, what, length);
}

void check_factor(const char* schedule, const char* what, double factor) {
  check(factor >= 0 && std::isfinite(factor), "{}: {} is {}", schedule, what, factor);
}

double real(std::int64_t k) { return static_cast<double>(k); }

// Falls from 1 at x = 0 to 0 at x = 1 along half a cosine.
double half_cosine(double x) { return (1 + std::cos(std::numbers::pi * x)) / 2; }

// min(k, length) / length
double progress(std::int64_t k, std::int64_t length) {
  return real(std::min(k, length)) / real(length);
}

double warmed(std::int64_t k, std::int64_t warmup) {
  return std::min(1.0, real(k + 1) / real(warmup));
}

// Returns the position of step k within its cycle, in [0, 1).
double cycle_position(std::int64_t k, std::int64_t length, std::int64_t growth) {
  if (growth == 1) return real(k % length) / real(length);
  // Stop as soon as the cycle is longer than the remaining k, before the product overflows.
  while (k >= length) {
    k -= length;
    if (length > k / growth) return real(k) / (real(length) * real(growth));
    length *= growth;
  }
  return real(k) / real(length);
}

// A piece of the one-cycle schedule: at step `end` it reaches `rate` and `momentum`.
struct Phase {
  double end;
  double rate;
  double momentum;
};

std::vector<Phase> phases(const OneCycle& c) {
  const double first = c.max_rate / c.start_divisor;
  const double last = first / c.final_divisor;
  const double steps = real(c.total_steps);
  const double top = c.rise * steps - 1;
  const double low = c.base_momentum;
  const double high = c.max_momentum;
  if (!c.three_phase) {
    return {{0, first, high}, {top, c.max_rate, low}, {steps - 1, last, high}};
  }
  return {
      {0, first, high}, {top, c.max_rate, low}, {2 * top, first, high}, {steps - 1, last, high}};
}

double at(const std::vector<Phase>& phases, bool cosine, std::int64_t step, double Phase::*what) {
  const double k = std::min(real(step), phases.back().end);
  std::size_t i = 1;
  while (i + 1 < phases.size() && phases[i].end < k) ++i;
  const Phase& from = phases[i - 1];
  const Phase& to = phases[i];
  const double x = from.end < to.end ? (k - from.end) / (to.end - from.end) : 1;
  const double weight = cosine ? half_cosine(x) : 1 - x;
  return to.*what + (from.*what - to.*what) * weight;
}

}  // namespace

double Schedule::value(std::int64_t step, double base) const {
  check(step >= 0, "schedule: step {}", step);
  return rate_(step, base);
}

std::optional<double> Schedule::momentum(std::int64_t step) const {
  check(step >= 0, "schedule: step {}", step);
  if (!momentum_) return std::nullopt;
  return momentum_(step);
}

Schedule Schedule::by_epoch(const Schedule& schedule, std::int64_t steps_of_epoch) {
  check_length("by_epoch", "steps_of_epoch", steps_of_epoch);
  Schedule slower(
      [=](std::int64_t k, double base) { return schedule.value(k / steps_of_epoch, base); });
  if (schedule.momentum_)
    slower.momentum_ = [=](std::int64_t k) { return schedule.momentum_(k / steps_of_epoch); };
  return slower;
}

Schedule Schedule::step(std::int64_t length, double gamma) {
  check_length("step", "length", length);
  check_factor("step", "gamma", gamma);
  return Schedule(
      [=](std::int64_t k, double base) { return base * std::pow(gamma, real(k / length)); });
}

Schedule Schedule::multistep(std::vector<std::int64_t> milestones, double gamma) {
  check_factor("multistep", "gamma", gamma);
  return Schedule([milestones = std::move(milestones), gamma](std::int64_t k, double base) {
    const auto passed = std::count_if(milestones.begin(), milestones.end(),
                                      [k](std::int64_t milestone) { return milestone <= k; });
    return base * std::pow(gamma, real(passed));
  });
}

Schedule Schedule::exponential(double gamma) {
  check_factor("exponential", "gamma", gamma);
  return Schedule([=](std::int64_t k, double base) { return base * std::pow(gamma, real(k)); });
}

Schedule Schedule::cosine(std::int64_t length, double low) {
  check_length("cosine", "length", length);
  check_factor("cosine", "low", low);
  return Schedule([=](std::int64_t k, double base) {
    return low + (base - low) * half_cosine(real(k) / real(length));
  });
}

Schedule Schedule::cosine_restarts(std::int64_t length, std::int64_t growth, double low) {
  check_length("cosine_restarts", "length", length);
  check_length("cosine_restarts", "growth", growth);
  check_factor("cosine_restarts", "low", low);
  return Schedule([=](std::int64_t k, double base) {
    return low + (base - low) * half_cosine(cycle_position(k, length, growth));
  });
}

Schedule Schedule::linear(double start, double end, std::int64_t length) {
  check_length("linear", "length", length);
  check_factor("linear", "start", start);
  check_factor("linear", "end", end);
  return Schedule([=](std::int64_t k, double base) {
    return base * (start + (end - start) * progress(k, length));
  });
}

Schedule Schedule::constant(double factor, std::int64_t length) {
  check_length("constant", "length", length);
  check_factor("constant", "factor", factor);
  return Schedule([=](std::int64_t k, double base) { return k < length ? base * factor : base; });
}

Schedule Schedule::polynomial(std::int64_t length, double power) {
  check_length("polynomial", "length", length);
  check_factor("polynomial", "power", power);
  return Schedule(
      [=](std::int64_t k, double base) { return base * std::pow(1 - progress(k, length), power); });
}

Schedule Schedule::one_cycle(const OneCycle& cycle) {
  check_length("one_cycle", "total_steps", cycle.total_steps);
  check_factor("one_cycle", "max_rate", cycle.max_rate);
  check_factor("one_cycle", "base_momentum", cycle.base_momentum);
  check_factor("one_cycle", "max_momentum", cycle.max_momentum);
  check(cycle.start_divisor > 0 && cycle.final_divisor > 0, "one_cycle: divisors {} and {}",
        cycle.start_divisor, cycle.final_divisor);
  check(cycle.rise >= 0 && cycle.rise <= 1,
        "one_cycle: rise is {}, not a fraction of all steps in [0, 1]", cycle.rise);
  const std::vector<Phase> parts = phases(cycle);
  Schedule schedule([parts, cosine = cycle.cosine](std::int64_t k, double) {
    return at(parts, cosine, k, &Phase::rate);
  });
  if (cycle.cycle_momentum) {
    schedule.momentum_ = [parts, cosine = cycle.cosine](std::int64_t k) {
      return at(parts, cosine, k, &Phase::momentum);
    };
  }
  return schedule;
}

Schedule Schedule::warmup_linear(std::int64_t warmup) {
  check_length("warmup_linear", "warmup", warmup);
  return Schedule([=](std::int64_t k, double base) { return base * warmed(k, warmup); });
}

Schedule Schedule::warmup_cosine(std::int64_t warmup, std::int64_t total, double end) {
  check(warmup >= 0, "warmup_cosine: warmup is {}", warmup);
  check_factor("warmup_cosine", "end", end);
  check(total > warmup, "warmup_cosine: {} steps with a warmup of {}", total, warmup);
  return Schedule([=](std::int64_t k, double base) {
    if (k < warmup) return base * warmed(k, warmup);
    return base * (end + (1 - end) * half_cosine(progress(k - warmup, total - warmup)));
  });
}

Schedule Schedule::warmup_linear_decay(std::int64_t warmup, std::int64_t total) {
  check(warmup >= 0, "warmup_linear_decay: warmup is {}", warmup);
  check(total > warmup, "warmup_linear_decay: {} steps with a warmup of {}", total, warmup);
  return Schedule([=](std::int64_t k, double base) {
    if (k < warmup) return base * warmed(k, warmup);
    return base * (1 - progress(k - warmup, total - warmup));
  });
}

Schedule Schedule::inverse_sqrt(std::int64_t warmup) {
  check_length("inverse_sqrt", "warmup", warmup);
  return Schedule([=](std::int64_t k, double base) {
    return base * std::min(real(k + 1) / real(warmup), std::sqrt(real(warmup) / real(k + 1)));
  });
}

}  // namespace sotto::nn
