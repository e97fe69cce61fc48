#include "dp/noise/gaussian_mechanism.h"

#include <cmath>
#include <numeric>

#include "core/random/gaussian.h"
#include "core/random/rounded_gaussian.h"
#include "core/random/secret_random.h"
#include "dp/accounting/calibration.h"
#include "dp/noise/noise_grid.h"
#include "dp/noise/noise_prefetch.h"
#include "dp/noise/noisy_update_pass.h"
#include "dp/numerics/directed_rounding.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

// The generator, and the parts of the last release that the next one reuses.
struct GaussianMechanism::State {
  SecretRandom random;
  NoiseGrid grid = {};
  std::shared_ptr<const RoundedGaussian> sampler = {};  // for that grid
  // The number of elements of each sum, if the sums were on the CPU and the release before had the
  // same grid.
  std::vector<std::int64_t> expected_counts = {};
  std::unique_ptr<NoisePrefetch> prefetch = {};
  std::vector<double> draws = {};  // of floating-point noise
};

GaussianMechanism::GaussianMechanism(double noise_multiplier, GaussianNoise noise)
    : GaussianMechanism(noise_multiplier, SecretRandom(), noise) {}

GaussianMechanism::GaussianMechanism(double noise_multiplier, SecretRandom random,
                                     GaussianNoise noise)
    : noise_(noise), state_(new State{std::move(random)}) {
  set_noise_multiplier(noise_multiplier);
}

GaussianMechanism::~GaussianMechanism() = default;

bool GaussianMechanism::secure() const { return state_->random.secure(); }

void GaussianMechanism::set_noise_multiplier(double noise_multiplier) {
  check(std::isfinite(noise_multiplier) && noise_multiplier >= 0,
        "GaussianMechanism: a noise multiplier of {}", noise_multiplier);
  noise_multiplier_ = noise_multiplier;
}

Event GaussianMechanism::event(Event batch) const {
  check(batch.sampling != Sampling::planned,
        "GaussianMechanism: the noise multiplier of one step is not that of a plan "
        "(CorrelatedMechanism)");
  batch.noise_multiplier = noise_multiplier_;
  return batch;
}

std::string GaussianMechanism::description() const {
  return fmt::format(
      "Gaussian, noise multiplier {} ({} keyed by {})", noise_text(noise_multiplier_),
      noise_ == GaussianNoise::discretized ? "exact sampler on a grid," : "floating-point sampler",
      secure() ? "the operating system" : "a SEED: NOT PRIVATE");
}

void GaussianMechanism::check_scale(const NoiseScale& scale, std::int64_t elements) const {
  if (scale.multiplier > 0 && noise_ == GaussianNoise::discretized && elements > 0)
    noise_grid(scale.multiplier, scale.sensitivity, elements);
}

void GaussianMechanism::add_noise(NoisyUpdate& update, const NoiseScale& scale) {
  if (scale.multiplier > 0 && noise_ == GaussianNoise::discretized) {
    add_rounded(update, scale);
  } else {
    add_floating_point(update, scale);
  }
}

void GaussianMechanism::prefetch() {
  constexpr std::int64_t min_elements = 1 << 12;  // fewer are not worth another thread
  auto& [random, grid, sampler, counts, prefetch, draws] = *state_;
  if (prefetch && prefetch->ours()) return;
  prefetch.reset();
  if (std::reduce(counts.begin(), counts.end()) < min_elements) return;
  try {
    prefetch = std::make_unique<NoisePrefetch>(sampler, random, counts);
  } catch (const std::exception&) {
    // No memory, or no random words, for prefetching: the noise will be drawn when it is needed,
    // and errors are thrown then.
  }
}

void GaussianMechanism::add_rounded(NoisyUpdate& update, const NoiseScale& scale) {
  std::vector<std::int64_t> counts;
  for (std::size_t k = 0; k < update.sums().size(); ++k) counts.push_back(update.own_size(k));
  const std::int64_t elements = update.elements();
  if (elements == 0) return;
  const NoiseGrid grid = noise_grid(scale.multiplier, scale.sensitivity, elements);
  const bool same = state_->sampler && grid == state_->grid, on_gpu = update.on_one_gpu();
  const std::unique_ptr<NoisePrefetch> prefetch = std::move(state_->prefetch);
  const bool useful =
      prefetch && same && !on_gpu && prefetch->ours() && prefetch->counts() == counts;
  if (!same) state_->sampler = std::make_shared<const RoundedGaussian>(grid.stddev);
  state_->grid = grid;
  const bool expected = same && !on_gpu && !update.divided();
  state_->expected_counts = expected ? std::move(counts) : std::vector<std::int64_t>();
  if (on_gpu) return update.on_gpu(grid, {.gaussian = *state_->sampler, .random = state_->random});
  const ChaChaStream stream =
      useful ? ChaChaStream() : state_->random.reserve(update.noise_blocks());
  update.on_cpu(grid, [&](NoisePlace place, std::span<std::int64_t> room) {
    if (useful) return prefetch->next(room);
    ChaChaStream here = stream;
    here.block += place.block;
    state_->sampler->fill(here, room);
    return std::span<const std::int64_t>(room);
  });
}

void GaussianMechanism::add_floating_point(NoisyUpdate& update, const NoiseScale& scale) {
  check(scale.multiplier == 0 || !update.divided(),
        "GaussianMechanism: floating-point noise on several ranks");
  for (std::size_t k = 0; k < update.sums().size(); ++k) {
    const Tensor& total = update.sums()[k].second;
    // Sum, noise and division are computed in f64, and the result is rounded once.
    const Tensor wide = to_dtype(total, Dtype::f64);
    if (scale.multiplier > 0) {
      state_->draws.resize(static_cast<std::size_t>(total.numel()));
      fill_gaussian(state_->random, state_->draws);
      axpby(noise_stddev(scale), Tensor::from(state_->draws, total.shape()), 1, wide);
    }
    axpby(1 / scale.divisor, wide, 0, wide);
    copy_into(wide, update.released()[k].second);
    update.finished(k);
  }
}

}  // namespace sotto
