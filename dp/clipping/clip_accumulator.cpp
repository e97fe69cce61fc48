#include "dp/clipping/clip_accumulator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/memory_labels.h"
#include "dp/clipping/unit_norms.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/shard_buckets.h"

namespace sotto {

namespace {

// Returns the centered count of `some` units out of `all`: 1/2 for each of them, -1/2 for each
// other, and 0 for those without rows, which are among the first.
double centered_count(std::ptrdiff_t some, std::size_t all, std::int64_t without_rows) {
  return static_cast<double>(some) -
         (static_cast<double>(all) + static_cast<double>(without_rows)) / 2;
}

}  // namespace

std::int64_t units_without_rows(const Grouping& grouping) {
  std::vector<char> has_row(static_cast<std::size_t>(grouping.units));
  for (const std::int64_t unit : grouping.unit_of_row)
    if (unit >= 0 && unit < grouping.units) has_row[static_cast<std::size_t>(unit)] = 1;
  return std::count(has_row.begin(), has_row.end(), char{0});
}

ClipAccumulator::ClipAccumulator(const std::vector<ClipGroup>& groups, const SumSize& size)
    : groups_(groups), size_(size) {
  clear();
}

void ClipAccumulator::clear() {
  sums_.clear();
  for (const ClipGroup& group : groups_) {
    for (Parameter* parameter : group.parameters) sums_.emplace_back(parameter, Tensor());
  }
  deferred_.assign(sums_.size(), nullptr);
  statistics_ = {};
  statistics_.norms.resize(groups_.size());
  statistics_.factors.resize(groups_.size());
  unclipped_.assign(groups_.size(), 0);
  finite_ = 0;
}

void ClipAccumulator::mark() {
  mark_ = {statistics_.loss_sum, statistics_.rows, statistics_.not_finite, unclipped_, {}};
  for (std::size_t k = 0; k < sums_.size(); ++k)
    mark_.had_sum.push_back(sums_[k].second.defined() || deferred_[k]);
  touched_ = false;
}

bool ClipAccumulator::undo() {
  if (touched_) return false;
  for (std::size_t k = 0; k < sums_.size(); ++k) {
    if (mark_.had_sum[k]) continue;
    sums_[k].second = Tensor();
    deferred_[k] = nullptr;
  }
  statistics_.loss_sum = mark_.loss_sum;
  statistics_.rows = mark_.rows;
  statistics_.not_finite = mark_.not_finite;
  const auto units = static_cast<std::size_t>(statistics_.units);
  for (auto& norms : statistics_.norms) norms.resize(units);
  for (auto& factors : statistics_.factors) factors.resize(units);
  unclipped_ = mark_.unclipped;
  return true;
}

void ClipAccumulator::begin_units(std::int64_t units, std::int64_t without_rows) {
  without_rows_ = without_rows;
  unit_finite_.assign(static_cast<std::size_t>(units), true);
}

void ClipAccumulator::end_units() {
  const auto finite = std::count(unit_finite_.begin(), unit_finite_.end(), char{true});
  finite_ += centered_count(finite, unit_finite_.size(), without_rows_);
  statistics_.units += std::ssize(unit_finite_);
}

void ClipAccumulator::record_norms(std::size_t group, const std::vector<double>& norms,
                                   const std::vector<double>& factors) {
  const UnitCounts counts = count_units(norms, factors, groups_[group].bound, unit_finite_);
  statistics_.not_finite += counts.lost;
  unclipped_[group] += centered_count(counts.within, norms.size(), without_rows_);
  auto &all_norms = statistics_.norms[group], &all_factors = statistics_.factors[group];
  all_norms.insert(all_norms.end(), norms.begin(), norms.end());
  all_factors.insert(all_factors.end(), factors.begin(), factors.end());
}

void ClipAccumulator::add_losses(const std::vector<double>& losses, const Grouping* grouping) {
  if (!grouping) {
    statistics_.loss_sum += finite_sum(losses);
    statistics_.rows += std::count_if(losses.begin(), losses.end(),
                                      [](double loss) { return std::isfinite(loss); });
    return;
  }
  for (std::size_t row = 0; row < losses.size(); ++row) {
    const bool counts = row < grouping->unit_of_row.size() && grouping->unit_of_row[row] >= 0;
    if (!counts || !std::isfinite(losses[row])) continue;
    statistics_.loss_sum += losses[row];
    ++statistics_.rows;
  }
}

double ClipAccumulator::spacing_for(const Parameter& parameter) const {
  if (parameter.value.dtype() == Dtype::f64) return 0;
  return sum_spacing(groups_[group_of(groups_, parameter)], size_);
}

std::vector<double> ClipAccumulator::spacings() const {
  std::vector<double> all;
  for (const ClipGroup& group : groups_) all.push_back(sum_spacing(group, size_));
  return all;
}

RoundedSum ClipAccumulator::empty_sum(const Parameter& parameter, Device device) const {
  return {zeros(parameter.value.shape(), Dtype::f64, device), spacing_for(parameter)};
}

std::size_t ClipAccumulator::place_of(const Parameter& parameter) const {
  const auto entry = std::find_if(sums_.begin(), sums_.end(),
                                  [&](const auto& sum) { return sum.first == &parameter; });
  return static_cast<std::size_t>(entry - sums_.begin());
}

// A sum to which nothing was added yet is zeros.
Tensor& ClipAccumulator::complete(std::size_t place) {
  auto& [parameter, sum] = sums_[place];
  if (sum.defined()) return sum;
  const auto deferred = std::exchange(deferred_[place], nullptr);
  sum = deferred ? deferred->whole()
                 : zeros(parameter->value.shape(), Dtype::f64, parameter->value.device());
  label_for(*parameter, MemoryKind::gradient, sum);
  return sum;
}

RoundedSum ClipAccumulator::sum_for(const Parameter& parameter) {
  const std::size_t place = place_of(parameter);
  touched_ = touched_ || mark_.had_sum[place];
  return {complete(place), spacing_for(parameter)};
}

bool ClipAccumulator::defer(const Parameter& parameter, const std::vector<PerSampleGrad>& uses,
                            const Tensor& weights, const BlockEnds& ends) {
  constexpr std::int64_t min_elements = std::int64_t{1} << 16;  // 512 KiB
  const std::size_t place = place_of(parameter);
  if (parameter.value.numel() < min_elements || sums_[place].second.defined() || deferred_[place])
    return false;
  const auto later = DeferredSum::of(uses, weights, ends, spacing_for(parameter));
  // The update changes parameters one after the other, while sums are still to be read.
  const bool changes = later && std::ranges::any_of(sums_, [&](const auto& sum) {
                         return later->reads(sum.first->value);
                       });
  if (later && !changes) deferred_[place] = later;
  return deferred_[place] != nullptr;
}

void ClipAccumulator::add_sums(const Gradients& totals, Totals state) {
  std::vector<std::pair<Tensor, Tensor>> added, copied;
  for (const auto& [parameter, total] : totals) {
    const std::size_t place = place_of(*parameter);
    Tensor& sum = sums_[place].second;
    if (sum.defined() || deferred_[place]) {
      added.emplace_back(total, sum_for(*parameter).total);
      continue;
    }
    sum = state == Totals::given_up ? total : empty_like(total);
    if (state == Totals::overwritten) copied.emplace_back(total, sum);
    label_for(*parameter, MemoryKind::gradient, sum);
  }
  copy_all(added, true);
  copy_all(copied);
}

const Gradients& ClipAccumulator::complete_sums() {
  for (std::size_t place = 0; place < sums_.size(); ++place) complete(place);
  return sums_;
}

void ClipAccumulator::settle(const Parameter& parameter) {
  if (owners_ == nullptr) return;
  const std::size_t place = place_of(parameter);
  if (!owners_->has(parameter)) owners_->give(*sums_[place].first, complete(place));
  sums_[place].second = Tensor();
}

std::vector<Parameter*> ClipAccumulator::settle_all() {
  std::vector<Parameter*> parameters;
  for (const auto& [parameter, sum] : sums_) parameters.push_back(parameter);
  for (const Parameter* parameter : parameters) settle(*parameter);
  sums_.clear();
  deferred_.clear();
  return parameters;
}

Gradients ClipAccumulator::take_sums(DeferredSums& deferred) {
  for (std::size_t place = 0; place < sums_.size(); ++place) {
    if (!deferred_[place]) complete(place);
  }
  deferred = std::exchange(deferred_, {});
  return std::exchange(sums_, {});
}

}  // namespace sotto
