#include "dp/noise/mechanism.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/memory_labels.h"
#include "core/allocator/limit_exemption.h"
#include "core/ranks/collectives.h"
#include "core/ranks/one_rank.h"
#include "dp/accounting/calibration.h"
#include "dp/clipping/clipped_sum_content.h"
#include "dp/noise/noisy_update_pass.h"

namespace sotto {

struct NoisyGradient::Content {
  Gradients gradients;
  double noise_variance;
  std::vector<double> unclipped_fraction;
  std::optional<double> finite;
};

NoisyGradient::NoisyGradient(Content content)
    : content_(std::make_shared<const Content>(std::move(content))) {}

const Gradients& NoisyGradient::gradients() const { return content_->gradients; }
double NoisyGradient::noise_variance() const { return content_->noise_variance; }
const std::vector<double>& NoisyGradient::unclipped_fraction() const {
  return content_->unclipped_fraction;
}
std::optional<double> NoisyGradient::finite() const { return content_->finite; }

NoisyGradient Mechanism::release(ClippedSum sum, Ledger& ledger,
                                 const Ledger::BudgetCheck& budget_check,
                                 double unclipped_count_stddev) {
  return release(std::move(sum), ledger, nullptr, budget_check, unclipped_count_stddev);
}

NoisyGradient Mechanism::update(ClippedSum sum, Ledger& ledger, nn::Optimizer& optimizer,
                                const Ledger::BudgetCheck& budget_check,
                                double unclipped_count_stddev) {
  return release(std::move(sum), ledger, &optimizer, budget_check, unclipped_count_stddev);
}

// Ranks that charge one ledger must release parts of one sum: if each released a sum of its own,
// one charge would pay for several releases.
void Mechanism::record(const SampledBatch& draw, const Ranks& ranks, Ledger& ledger,
                       const Ledger::BudgetCheck& budget_check) {
  const auto text = [](const Ranks& one) { return one.size() > 1 ? "several ranks" : "one rank"; };
  const auto of_ledger = ranks_or_one(ledger.ranks());
  check(same_run(ranks, *of_ledger), "release: a sum of {} with a ledger of {}", text(ranks),
        text(*of_ledger));
  if (ledger.population() != draw.population()) ledger.set_population(draw.population());
  if (!secure()) ledger.mark_not_private("noise from a seeded generator");
  if (!draw.secure()) ledger.mark_not_private("batches from a seeded generator");
  ledger.record(event(draw.event()), draw.number(), budget_check,
                EpochPosition{draw.epoch_began(), draw.index_in_epoch(), draw.epoch_id()});
}

namespace {

bool all_on_cpu(const Gradients& sums) {
  return std::ranges::all_of(
      sums, [](const auto& sum) { return !sum.second.defined() || sum.second.device() == cpu; });
}

// Returns tensors for the released sums, in the types of their parameters, or undefined ones if
// they are dropped. A sum that already has its parameter's type is used itself.
Gradients room_for(const Gradients& sums, bool dropped) {
  Gradients released;
  for (const auto& [parameter, total] : sums) {
    if (dropped) {
      released.emplace_back(parameter, Tensor());
      continue;
    }
    const Dtype dtype = parameter->value.dtype();
    const bool same = total.dtype() == dtype;
    released.emplace_back(parameter,
                          same ? total : Tensor::empty(total.shape(), dtype, total.device()));
    if (!same) label_for(*parameter, MemoryKind::gradient, released.back().second);
  }
  return released;
}

std::vector<Parameter*> owners(const Gradients& sums) {
  std::vector<Parameter*> parameters;
  for (const auto& [parameter, sum] : sums) parameters.push_back(parameter);
  return parameters;
}

}  // namespace

// Adds noise to numbers that belong to no parameter, and divides them.
std::vector<double> Mechanism::noisy(const std::vector<double>& sums, const NoiseScale& scale) {
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
  ClippedSum::Content& content = sum.content();
  auto& [sums, sensitivity, unclipped, finite, draw, shards, deferred] = content;
  NoiseScale scale{event(draw.event()).noise_multiplier, sensitivity, draw.expected_batch_size()};
  NoiseScale counts{.divisor = draw.expected_batch_size()};
  std::vector<double> parts = unclipped;
  if (finite) parts.push_back(*finite);
  if (unclipped_count_stddev != 0) {
    check_independent();
    // Each unit adds 1/2 or -1/2 to each count.
    counts.sensitivity = std::sqrt(static_cast<double>(parts.size())) / 2;
    counts.multiplier = unclipped_count_stddev / counts.sensitivity;
    scale.multiplier = other_noise_multiplier(scale.multiplier, counts.multiplier);
    check_scale(counts, std::ssize(parts));
  }
  const bool dropped =
      optimizer != nullptr && !shards && drops_gradients(scale) && all_on_cpu(sums);
  if (!dropped) content.complete();
  const NoisyUpdate planned(sums, {}, scale.divisor, shards.get());
  check_scale(scale, planned.elements());
  prepare(draw, planned, sensitivity, ledger);
  const double stddev = noise_stddev(scale) / scale.divisor;
  Gradients released = room_for(sums, dropped);
  NoisyUpdate update(sums, released, scale.divisor, shards.get());
  if (!deferred.empty()) update.read_deferred(deferred);
  if (optimizer != nullptr) update.make_step(*optimizer, stddev * stddev);
  std::optional<nn::ValuesFromOwners> values;
  if (optimizer != nullptr && shards) update.send_values(values.emplace(*shards, owners(sums)));
  // A release that was charged must be completed, so the memory limit does not apply from here on.
  const LimitExemption exemption;
  const OneRank alone;
  const Ranks& ranks = shards ? static_cast<const Ranks&>(shards->ranks()) : alone;
  record(draw, ranks, ledger, budget_check);
  add_noise(update, scale);
  sums.clear();  // frees memory
  if (values) values->wait();
  if (dropped) released.clear();
  if (unclipped_count_stddev == 0)
    return NoisyGradient({std::move(released), stddev * stddev, {}, {}});
  parts = noisy(parts, counts);
  for (double& part : parts) part += 0.5;
  const auto noisy_finite = finite ? std::optional(parts.back()) : std::nullopt;
  if (finite) parts.pop_back();
  return NoisyGradient({std::move(released), stddev * stddev, std::move(parts), noisy_finite});
}

// Only gradients can have correlated noise: anything else gets independent noise.
void Mechanism::check_independent() const {
  check(independent(), "release: only gradients can be released with correlated noise");
}

}  // namespace sotto
