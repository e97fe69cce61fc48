#include "dp/noise/mechanism.h"

#include <cmath>
#include <numeric>

#include "autograd/memory_labels.h"
#include "core/allocator/limit_exemption.h"
#include "core/random/gaussian.h"
#include "core/random/rounded_gaussian.h"
#include "dp/accounting/calibration.h"
#include "dp/noise/noise_prefetch.h"
#include "dp/noise/noisy_update_pass.h"
#include "dp/numerics/directed_rounding.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

void Mechanism::record(const SampledBatch& draw, Ledger& ledger,
                       const Ledger::BudgetCheck& budget_check) {
  if (ledger.population() != draw.population()) ledger.set_population(draw.population());
  if (!secure()) ledger.mark_not_private("noise from a seeded generator");
  if (!draw.secure()) ledger.mark_not_private("batches from a seeded generator");
  ledger.record(event(draw.event()), draw.number(), budget_check,
                EpochPosition{draw.pass(), draw.index_in_epoch()});
}

namespace {

std::int64_t elements_of(const Gradients& sums) {
  std::int64_t elements = 0;
  for (const auto& [parameter, total] : sums) elements += total.numel();
  return elements;
}

// Returns tensors for the released sums, in the types of their parameters. A sum that already has
// its parameter's type is used itself.
Gradients room_for(const Gradients& sums) {
  Gradients released;
  for (const auto& [parameter, total] : sums) {
    const Dtype dtype = parameter->value.dtype();
    const bool same = total.dtype() == dtype;
    released.emplace_back(parameter,
                          same ? total : Tensor::empty(total.shape(), dtype, total.device()));
    if (!same) label_for(*parameter, MemoryKind::gradient, released.back().second);
  }
  return released;
}

}  // namespace

// Adds noise to numbers that belong to no parameter, and divides them.
std::vector<double> Mechanism::noisy(const std::vector<double>& sums, const Scale& scale) {
  const Tensor values = Tensor::from(sums, {std::ssize(sums)});
  const Gradients numbers{{nullptr, values}};
  NoisyUpdate update(numbers, numbers, scale.divisor);
  add_noise(update, scale);
  return values.to_vector<double>();
}

NoisyGradient Mechanism::release(ClippedSum sum, Ledger& ledger, nn::Optimizer* optimizer,
                                 const Ledger::BudgetCheck& budget_check,
                                 double unclipped_count_stddev) {
  MemoryLabel label = memory_label();
  label.kind = MemoryKind::workspace;
  label.phase = "update";
  const LabelScope labelled(label);
  const SampledBatch& draw = sum.draw_;
  Scale scale{event(draw.event()).noise_multiplier, sum.sensitivity_, draw.expected_batch_size()};
  Scale counts{.divisor = draw.expected_batch_size()};
  std::vector<double> parts = sum.unclipped_;
  if (sum.finite_) parts.push_back(*sum.finite_);
  if (unclipped_count_stddev != 0) {
    check_independent();
    // Each unit adds 1/2 or -1/2 to each count.
    counts.sensitivity = std::sqrt(static_cast<double>(parts.size())) / 2;
    counts.multiplier = unclipped_count_stddev / counts.sensitivity;
    scale.multiplier = other_noise_multiplier(scale.multiplier, counts.multiplier);
    check_scale(counts, std::ssize(parts));
  }
  check_scale(scale, elements_of(sum.sums_));
  prepare(draw, sum.sums_, sum.sensitivity_, ledger);
  const double stddev = noise_stddev(scale) / scale.divisor;
  Gradients released = room_for(sum.sums_);
  NoisyUpdate update(sum.sums_, released, scale.divisor);
  if (optimizer != nullptr) update.make_step(*optimizer, stddev * stddev);
  // A release that was charged must be completed, so the memory limit does not apply from here on.
  const LimitExemption exemption;
  record(draw, ledger, budget_check);
  add_noise(update, scale);
  sum.sums_.clear();  // frees memory
  if (unclipped_count_stddev == 0)
    return NoisyGradient(std::move(released), stddev * stddev, {}, {});
  parts = noisy(parts, counts);
  for (double& part : parts) part += 0.5;
  const auto finite = sum.finite_ ? std::optional(parts.back()) : std::nullopt;
  if (finite) parts.pop_back();
  return NoisyGradient(std::move(released), stddev * stddev, std::move(parts), finite);
}

// Only gradients can have correlated noise: anything else gets independent noise.
void Mechanism::check_independent() const {
  check(independent(), "release: only gradients can be released with correlated noise");
}

std::vector<double> Mechanism::release(BoundedStatistics statistics, Ledger& ledger,
                                       const Ledger::BudgetCheck& budget_check) {
  check_independent();
  const SampledBatch& draw = statistics.draw_;
  const double sensitivity = std::sqrt(static_cast<double>(statistics.ranges_.size()));
  const Scale scale{event(draw.event()).noise_multiplier, sensitivity, draw.expected_batch_size()};
  check_scale(scale, std::ssize(statistics.sums_));
  record(draw, ledger, budget_check);
  std::vector<double> means = noisy(statistics.sums_, scale);
  for (std::size_t k = 0; k < means.size(); ++k)
    means[k] = statistics.ranges_[k].from_unit(means[k]);
  return means;
}

GaussianMechanism::GaussianMechanism(double noise_multiplier, SecretRandom random,
                                     GaussianNoise noise)
    : random_(std::move(random)), noise_(noise) {
  set_noise_multiplier(noise_multiplier);
}

GaussianMechanism::~GaussianMechanism() = default;

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
      random_.secure() ? "the operating system" : "a SEED: NOT PRIVATE");
}

void GaussianMechanism::check_scale(const Scale& scale, std::int64_t elements) const {
  if (scale.multiplier > 0 && noise_ == GaussianNoise::discretized && elements > 0)
    noise_grid(scale.multiplier, scale.sensitivity, elements);
}

void GaussianMechanism::add_noise(NoisyUpdate& update, const Scale& scale) {
  if (scale.multiplier > 0 && noise_ == GaussianNoise::discretized) {
    add_rounded(update, scale);
  } else {
    add_floating_point(update, scale);
  }
}

void GaussianMechanism::prefetch() {
  constexpr std::int64_t min_elements = 1 << 12;  // fewer are not worth another thread
  if (prefetch_ && prefetch_->ours()) return;
  prefetch_.reset();
  if (std::reduce(expected_counts_.begin(), expected_counts_.end()) < min_elements) return;
  try {
    prefetch_ = std::make_unique<NoisePrefetch>(sampler_, random_, expected_counts_);
  } catch (const std::exception&) {
    // No memory, or no random words, for prefetching: the noise will be drawn when it is needed,
    // and errors are thrown then.
  }
}

void GaussianMechanism::add_rounded(NoisyUpdate& update, const Scale& scale) {
  std::vector<std::int64_t> counts;
  for (const auto& [parameter, total] : update.sums()) counts.push_back(total.numel());
  const std::int64_t elements = elements_of(update.sums());
  if (elements == 0) return;
  const NoiseGrid grid = noise_grid(scale.multiplier, scale.sensitivity, elements);
  const bool same = sampler_ && grid == grid_, on_gpu = update.on_one_gpu();
  const std::unique_ptr<NoisePrefetch> prefetch = std::move(prefetch_);
  const bool useful =
      prefetch && same && !on_gpu && prefetch->ours() && prefetch->counts() == counts;
  if (!same) sampler_ = std::make_shared<const RoundedGaussian>(grid.stddev);
  grid_ = grid;
  expected_counts_ = same && !on_gpu ? std::move(counts) : std::vector<std::int64_t>();
  if (on_gpu) return update.on_gpu(grid, {.gaussian = *sampler_, .random = random_});
  update.on_cpu(grid, [&](std::int64_t /*first*/, std::span<std::int64_t> room) {
    if (useful) return prefetch->next(room);
    sampler_->fill(random_, room);
    return std::span<const std::int64_t>(room);
  });
}

void GaussianMechanism::add_floating_point(NoisyUpdate& update, const Scale& scale) {
  for (std::size_t k = 0; k < update.sums().size(); ++k) {
    const Tensor& total = update.sums()[k].second;
    // Sum, noise and division are computed in f64, and the result is rounded once.
    const Tensor wide = to_dtype(total, Dtype::f64);
    if (scale.multiplier > 0) {
      draws_.resize(static_cast<std::size_t>(total.numel()));
      fill_gaussian(random_, draws_);
      axpby(noise_stddev(scale), Tensor::from(draws_, total.shape()), 1, wide);
    }
    axpby(1 / scale.divisor, wide, 0, wide);
    copy_into(wide, update.released()[k].second);
    update.finished(k);
  }
}

}  // namespace sotto
