#include "dp/clipping/host_group_clipper.h"

#include <algorithm>
#include <optional>

#include "autograd/per_sample/per_sample_grad.h"
#include "core/allocator/allocator.h"
#include "dp/clipping/unit_norms.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

struct Factors : ClipFactors {
  Tensor weights;  // `values` / loss scale; 0 for units that are summed separately
};

// The sum of one parameter's clipped gradients, which is added to the accumulator.
struct ParameterSum {
  const ClipBatch& batch;
  ClipAccumulator& accumulator;
  Parameter& parameter;

  void add(const std::vector<PerSampleGrad>& uses, const Factors& factors) const;
  bool may_defer(const std::vector<PerSampleGrad>& uses, const Factors& factors) const;
  void add_terms(const RoundedSum& sum, const std::vector<PerSampleGrad>& uses,
                 const Factors& factors, const BlockEnds& ends) const;
  void add_units(const std::vector<PerSampleGrad>& uses, const Factors& factors, std::int64_t begin,
                 std::int64_t end) const;
};

// Returns factors / loss scale, [n]: weights for gradients of the scaled loss.
Tensor weights_of(std::vector<double> factors, double loss_scale) {
  const double unscaled = 1 / loss_scale;  // exact
  for (double& factor : factors) factor *= unscaled;
  return Tensor::from(factors, {std::ssize(factors)});
}

// Adds sum_n factor[n] G[n] to the accumulator. A sum may overflow although every norm is finite,
// because large terms of one sample cancel in its norm. Then each block is added alone; the units
// of a block that overflows are added one by one, and a unit that overflows by itself is left out.
// So one unit's overflow never changes what the units of other blocks add.
void ParameterSum::add(const std::vector<PerSampleGrad>& uses, const Factors& factors) const {
  const Device device = uses[0].device();
  if (factors.cannot_overflow && device == cpu) {
    if (may_defer(uses, factors) && accumulator.defer(parameter, uses, factors.weights, batch.ends))
      return;
    return add_terms(accumulator.sum_for(parameter), uses, factors, batch.ends);
  }
  {
    const RoundedSum all = accumulator.empty_sum(parameter, device);
    add_terms(all, uses, factors, batch.ends);
    if (all_finite(all.total)) return accumulator.add_sums({{&parameter, all.total}});
  }
  std::vector<std::int64_t> ends;
  if (batch.ends) ends = batch.ends(batch.options.sum_size.block);
  const std::int64_t units = std::ssize(factors.values);
  for (std::int64_t at = 0, end = 0; at < units; at = end) {
    end = ends.empty() ? at + 1 : *std::upper_bound(ends.begin(), ends.end(), at);
    add_units(uses, factors, at, end);
  }
}

// True if nothing else will be added to the sum, and the gradients take no more memory than it
// would: those of a single group were all kept for its norms. In two passes they are not kept. A
// plan for a memory limit counts the sums, and no gradients beside the update.
bool ParameterSum::may_defer(const std::vector<PerSampleGrad>& uses, const Factors& factors) const {
  if (!batch.deferred || batch.passes != ClipPasses::one || !factors.summed_separately.empty() ||
      allocator(cpu).limit() != 0)
    return false;
  std::size_t bytes = 0;
  for (const PerSampleGrad& use : uses) bytes += use.bytes();
  const auto sum_bytes = static_cast<std::size_t>(parameter.value.numel()) * size_of(Dtype::f64);
  return batch.groups.size() == 1 || bytes <= sum_bytes;
}

// Adds all units of the gradients. Those in factors.summed_separately are computed in f64, each as
// one term.
void ParameterSum::add_terms(const RoundedSum& sum, const std::vector<PerSampleGrad>& uses,
                             const Factors& factors, const BlockEnds& ends) const {
  for (const PerSampleGrad& use : uses) use.add_to(sum, factors.weights, ends, std::ssize(uses));
  for (const std::size_t n : factors.summed_separately) {
    const double weight = factors.values[n] / batch.loss_scale;
    add_term(sample_gradient_f64(uses, static_cast<std::int64_t>(n), weight), sum);
  }
}

// Adds units begin to end - 1 of the physical batch, which form one block or are one unit. A unit
// that is alone is the term that it would be in a block of its own.
void ParameterSum::add_units(const std::vector<PerSampleGrad>& uses, const Factors& factors,
                             std::int64_t begin, std::int64_t end) const {
  std::vector<PerSampleGrad> some;
  for (const PerSampleGrad& use : uses) some.push_back(use.slice(begin, end));
  Factors of_some{{.values = {factors.values.begin() + begin, factors.values.begin() + end}},
                  factors.weights.slice(0, begin, end)};
  for (const std::size_t n : factors.summed_separately) {
    const auto place = static_cast<std::int64_t>(n) - begin;
    if (place >= 0 && place < end - begin)
      of_some.summed_separately.push_back(static_cast<std::size_t>(place));
  }
  const bool alone = end - begin == 1;
  BlockEnds ends;
  if (batch.ends)
    ends = [&](std::int64_t max) {
      return alone ? std::vector<std::int64_t>{1} : ends_within(batch.ends(max), begin, end);
    };
  const RoundedSum all = accumulator.empty_sum(parameter, uses[0].device());
  add_terms(all, some, of_some, ends);
  if (all_finite(all.total)) return accumulator.add_sums({{&parameter, all.total}});
  if (alone) return accumulator.count_not_finite();
  for (std::int64_t n = begin; n < end; ++n) {
    if (factors.values[static_cast<std::size_t>(n)] != 0) add_units(uses, factors, n, n + 1);
  }
}

}  // namespace

struct HostGroupClipper::Group {
  std::optional<UnitNorms> norms;
  Factors factors;
};

HostGroupClipper::HostGroupClipper(const ClipBatch& batch, ClipAccumulator& accumulator)
    : batch_(batch), accumulator_(accumulator), groups_(batch.groups.size()) {}
HostGroupClipper::~HostGroupClipper() = default;

void HostGroupClipper::norms(std::size_t group, const Parameter& /*parameter*/,
                             const std::vector<PerSampleGrad>& uses) {
  std::optional<UnitNorms>& norms = groups_[group].norms;
  if (!norms) norms.emplace(batch_.units);
  norms->add(uses, batch_.options.norm_method, batch_.loss_scale);
}

void HostGroupClipper::factors(std::size_t group) {
  const ClipGroup& clipped = batch_.groups[group];
  auto& [norms, factors] = groups_[group];
  if (!norms) norms.emplace(batch_.units);  // the loss reached no parameter of the group
  factors = {norms->factors(batch_.options.rule, clipped.bound, rounding_margin(clipped),
                            batch_.loss_scale),
             {}};
  norms.reset();
  // The second backward computes gradients anew, so norms of the first do not rule out overflow.
  if (batch_.passes == ClipPasses::two) factors.cannot_overflow = false;
  accumulator_.record_norms(group, factors.norms, factors.values);
  weight(group);
  std::vector<double> together = factors.values;
  for (const std::size_t n : factors.summed_separately) together[n] = 0;
  factors.weights = weights_of(std::move(together), batch_.loss_scale);
}

// Multiplies factors by the units' weights, which are at most 1: no sum becomes larger. A unit of
// weight 0 is left out of all sums.
void HostGroupClipper::weight(std::size_t group) {
  const UnitWeights& weights = batch_.weights;
  if (weights.values.empty() || !weights.groups[group]) return;
  Factors& factors = groups_[group].factors;
  for (std::size_t n = 0; n < factors.values.size(); ++n) factors.values[n] *= weights.values[n];
  std::erase_if(factors.summed_separately, [&](std::size_t n) { return factors.values[n] == 0; });
}

void HostGroupClipper::sums(std::size_t group, Parameter& parameter,
                            const std::vector<PerSampleGrad>& uses) {
  ParameterSum{batch_, accumulator_, parameter}.add(uses, groups_[group].factors);
  if (batch_.last) accumulator_.settle(parameter);
}

void HostGroupClipper::clip(std::size_t group, ParameterUses gradients) {
  for (const auto& [parameter, uses] : gradients) norms(group, *parameter, uses);
  factors(group);
  for (auto& [parameter, uses] : gradients) {
    sums(group, *parameter, uses);
    uses.clear();  // frees memory for the next sum
  }
  groups_[group].factors = {};
}

}  // namespace sotto
