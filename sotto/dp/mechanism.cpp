#include "sotto/dp/mechanism.h"

#include <cmath>

#include "sotto/core/gaussian.h"
#include "sotto/kernels/compute.h"

namespace sotto {

Released Mechanism::release(ClippedSum sum, Ledger& ledger) {
  const Draw& draw = sum.draw_;
  if (!secure()) ledger.mark_not_private("noise from a seeded generator");
  if (!draw.secure()) ledger.mark_not_private("batches from a seeded generator");
  ledger.record(event(draw.sampling(), draw.rate()), draw.number());
  add_noise(sum.sums_, sum.sensitivity_);
  for (const auto& [parameter, total] : sum.sums_) axpby(1 / draw.expected_size(), total, 0, total);
  return Released(std::move(sum.sums_));
}

GaussianMechanism::GaussianMechanism(double noise_multiplier, SecretRandom random)
    : noise_multiplier_(noise_multiplier), random_(std::move(random)) {
  check(std::isfinite(noise_multiplier) && noise_multiplier >= 0,
        "GaussianMechanism: a noise multiplier of {}", noise_multiplier);
}

Event GaussianMechanism::event(Sampling sampling, double rate) const {
  return {.noise_multiplier = noise_multiplier_, .sampling = sampling, .sampling_rate = rate};
}

std::string GaussianMechanism::description() const {
  return fmt::format("Gaussian, noise multiplier {:.6g} (floating-point sampler keyed by {})",
                     noise_multiplier_,
                     random_.secure() ? "the operating system" : "a SEED: NOT PRIVATE");
}

void GaussianMechanism::add_noise(const Gradients& sums, double sensitivity) {
  if (noise_multiplier_ == 0) return;
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
