#include "memory/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/check_finite.h"

namespace sotto::memory {

namespace {

// A sample's gradient often has norm about 1, and the range of f16 ends at 2^16.
constexpr double first_in_f16 = 0x1p8;

bool all_finite(const Gradients& gradients) {
  std::vector<Tensor> tensors;
  for (const auto& [parameter, gradient] : gradients) tensors.push_back(gradient);
  return nn::all_finite(tensors);
}

}  // namespace

void check_loss_scale(double scale) {
  int exponent = 0;
  constexpr double min = 0x1p-24, max = 0x1p24;
  check(scale >= min && scale <= max && std::frexp(scale, &exponent) == 0.5,
        "loss scale: {} is not a power of two from 2^-24 to 2^24", scale);
}

LossScale::LossScale(const LossScaling& options, Dtype precision)
    : options_(options),
      value_(options.first.value_or(precision == Dtype::f16 ? first_in_f16 : 1)) {
  for (const double scale : {value_, options.min, options.max}) check_loss_scale(scale);
  check(options.min <= value_ && value_ <= options.max, "loss scale: {} is not in {} .. {}", value_,
        options.min, options.max);
  check(options.growth_interval >= 1, "loss scale: the growth interval is {}",
        options.growth_interval);
  check(options.tolerated > 0 && options.tolerated < 1,
        "loss scale: the tolerated fraction is {}, not in (0, 1)", options.tolerated);
}

std::optional<Gradients> LossScale::unscaled(const Gradients& gradients) {
  check(options_.adjust != LossScaling::Adjust::on_release,
        "loss scale: a scale that moves on_release is for private training");
  const double factor = 1 / value_;
  if (options_.adjust == LossScaling::Adjust::on_overflow) {
    const bool good = all_finite(gradients);
    move(good);
    if (!good) return std::nullopt;
  }
  if (factor == 1) return gradients;
  Gradients divided;
  for (const auto& [parameter, gradient] : gradients)
    divided.emplace_back(parameter, scale(gradient, factor));
  return divided;
}

void LossScale::follow(double finite_share) {
  check(options_.adjust == LossScaling::Adjust::on_release,
        "loss scale: only a scale that moves on_release follows a released fraction");
  move(finite_share >= 1 - options_.tolerated);
}

void LossScale::resume(double value, std::int64_t good_steps) {
  check_loss_scale(value);
  check(value >= options_.min && value <= options_.max && good_steps >= 0,
        "loss scale: {} after {} steps is not in {} .. {}", value, good_steps, options_.min,
        options_.max);
  value_ = value;
  good_steps_ = good_steps;
}

void LossScale::move(bool good) {
  good_steps_ = good ? good_steps_ + 1 : 0;
  if (!good) {
    value_ = std::max(value_ / 2, options_.min);
  } else if (good_steps_ == options_.growth_interval) {
    value_ = std::min(value_ * 2, options_.max);
    good_steps_ = 0;
  }
}

}  // namespace sotto::memory
