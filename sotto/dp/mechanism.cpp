#include "sotto/dp/mechanism.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sotto/core/gaussian.h"
#include "sotto/core/parallel.h"
#include "sotto/kernels/compute.h"

namespace sotto {

Released Mechanism::release(ClippedSum sum, Ledger& ledger) {
  const Draw& draw = sum.draw_;
  if (!secure()) ledger.mark_not_private("noise from a seeded generator");
  if (!draw.secure()) ledger.mark_not_private("batches from a seeded generator");
  ledger.record(event(draw.event()), draw.number());
  add_noise(sum.sums_, sum.sensitivity_);
  for (const auto& [parameter, total] : sum.sums_) axpby(1 / draw.expected_size(), total, 0, total);
  const double deviation = noise_deviation(sum.sensitivity_) / draw.expected_size();
  return Released(std::move(sum.sums_), deviation * deviation);
}

GaussianMechanism::GaussianMechanism(double noise_multiplier, SecretRandom random,
                                     GaussianNoise noise)
    : noise_multiplier_(noise_multiplier), random_(std::move(random)), noise_(noise) {
  check(std::isfinite(noise_multiplier) && noise_multiplier >= 0,
        "GaussianMechanism: a noise multiplier of {}", noise_multiplier);
}

Event GaussianMechanism::event(Event batch) const {
  batch.noise_multiplier = noise_multiplier_;
  return batch;
}

std::string GaussianMechanism::description() const {
  return fmt::format(
      "Gaussian, noise multiplier {:.6g} ({} keyed by {})", noise_multiplier_,
      noise_ == GaussianNoise::rounded ? "exact sampler on a grid," : "floating-point sampler",
      random_.secure() ? "the operating system" : "a SEED: NOT PRIVATE");
}

void GaussianMechanism::add_noise(const Gradients& sums, double sensitivity) {
  if (noise_multiplier_ == 0) return;
  if (noise_ == GaussianNoise::rounded) {
    add_rounded(sums, sensitivity);
  } else {
    add_floating_point(sums, sensitivity);
  }
}

void GaussianMechanism::add_rounded(const Gradients& sums, double sensitivity) {
  std::int64_t elements = 0;
  for (const auto& [parameter, total] : sums) elements += total.numel();
  if (elements == 0) return;
  const NoiseGrid grid = noise_grid(noise_multiplier_, sensitivity, elements);
  if (!sampler_ || grid != grid_) sampler_.emplace(grid.deviation);
  grid_ = grid;
  for (const auto& [parameter, total] : sums) {
    const Tensor flat = contiguous(total);
    const auto count = static_cast<std::size_t>(total.numel());
    if (total.dtype() == Dtype::f64) {
      add_rounded(std::span(flat.data<double>(), count));
    } else {
      add_rounded(std::span(flat.data<float>(), count));
    }
    if (!total.contiguous()) copy_into(flat, total);
  }
}

template <class T>
void GaussianMechanism::add_rounded(std::span<T> sum) {
  constexpr std::size_t most_draws = std::size_t{1} << 20;  // 8 MiB at once
  constexpr std::int64_t grain = 1 << 14;
  constexpr T largest = std::numeric_limits<T>::max();
  whole_draws_.resize(std::min(sum.size(), most_draws));
  while (!sum.empty()) {
    const auto part = sum.first(std::min(sum.size(), most_draws));
    const std::span noise(whole_draws_.data(), part.size());
    sampler_->fill(random_, noise);
    parallel_for(std::ssize(part), grain, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        check(!std::isnan(part[i]), "release: a sum is not a number");
        const std::int64_t n = grid_.rounded(std::clamp(part[i], -largest, largest)) + noise[i];
        part[i] = static_cast<T>(static_cast<double>(n) * grid_.spacing);
      }
    });
    sum = sum.subspan(part.size());
  }
}

void GaussianMechanism::add_floating_point(const Gradients& sums, double sensitivity) {
  for (const auto& [parameter, total] : sums) {
    draws_.resize(static_cast<std::size_t>(total.numel()));
    fill_gaussian(random_, draws_);
    const Tensor noise = Tensor::from(draws_, total.shape());
    // Added in double and rounded once.
    const Tensor wide = to_dtype(total, Dtype::f64);
    axpby(noise_multiplier_ * sensitivity, noise, 1, wide);
    copy_into(wide, total);
  }
}

}  // namespace sotto
