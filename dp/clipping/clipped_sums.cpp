// The sums of a clipper: they depend neither on the order of units nor on where parts of the batch
// end (docs/appendix/proofs-rounding.md, "The sum over units").
#include <algorithm>

#include "autograd/memory_labels.h"
#include "dp/clipping/clip_factors.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

void Clipper::begin(SumBlocks blocks) {
  start_batch();
  check_between_batches("another beginning");
  check(!blocks_, "Clipper: the batch has begun");
  check(blocks.limits().units <= options_.sum_size.block,
        "Clipper: blocks of {} units, of at most {}", blocks.limits().units,
        options_.sum_size.block);
  blocks_ = std::move(blocks);
}

// Returns the blocks of the next `units` units of the batch.
BlockEnds Clipper::blocks_of_part(std::int64_t units) const {
  if (!blocks_) return {};
  const std::int64_t first = statistics_.units, end = first + units;
  const std::vector<std::int64_t>& all = blocks_->ends();
  check(units == 0 || std::binary_search(all.begin(), all.end(), end),
        "Clipper: units {} to {} of the batch are a part that cuts a block", first, end - 1);
  if (blocks_->limits().units == 1) return {};
  return
      [this, first, end](std::int64_t max) { return ends_within(blocks_->ends(max), first, end); };
}

// Adds sum_n factor[n] G[n]. A sum may overflow although every norm is finite, as terms of one
// sample cancel. The samples of the block that overflows are then added one by one, and those that
// overflow alone are left out: none of them spoils the others, whose blocks keep their terms.
void Clipper::add_weighted(Parameter& parameter, const std::vector<PerSampleGrad>& uses,
                           const Factors& factors) {
  if (factors.cannot_overflow && uses[0].device() == cpu) {
    add_terms(sum_for(parameter), uses, factors, part_ends_);
  } else if (const RoundedSum all = empty_sum(parameter, uses[0].device());
             add_terms(all, uses, factors, part_ends_), all_finite(all.total)) {
    add_sum(parameter, all.total);
  } else {
    std::vector<std::int64_t> ends;
    if (part_ends_) ends = part_ends_(options_.sum_size.block);
    const std::int64_t units = std::ssize(factors.values);
    for (std::int64_t at = 0, end = 0; at < units; at = end) {
      end = ends.empty() ? at + 1 : *std::upper_bound(ends.begin(), ends.end(), at);
      add_block(parameter, uses, factors, at, end);
    }
  }
}

// Adds all units of the gradients, those that stay apart as terms of their own.
void Clipper::add_terms(const RoundedSum& sum, const std::vector<PerSampleGrad>& uses,
                        const Factors& factors, const BlockEnds& ends) const {
  for (const PerSampleGrad& use : uses) use.add_to(sum, factors.weights, ends, std::ssize(uses));
  for (const std::size_t n : factors.apart) {
    const double weight = factors.values[n] / loss_scale_;
    add_term(sample_gradient_f64(uses, static_cast<std::int64_t>(n), weight), sum);
  }
}

// Adds units begin .. end - 1 of the part, which are one block.
void Clipper::add_block(Parameter& parameter, const std::vector<PerSampleGrad>& uses,
                        const Factors& factors, std::int64_t begin, std::int64_t end) {
  std::vector<PerSampleGrad> some;
  for (const PerSampleGrad& use : uses) some.push_back(use.slice(begin, end));
  const auto units = static_cast<std::size_t>(end - begin);
  Factors of_some{{.values = {factors.values.begin() + begin, factors.values.begin() + end}},
                  factors.weights.slice(0, begin, end)};
  for (const std::size_t n : factors.apart) {
    const auto place = static_cast<std::int64_t>(n) - begin;
    if (place >= 0 && place < end - begin) of_some.apart.push_back(static_cast<std::size_t>(place));
  }
  BlockEnds ends;
  if (part_ends_) ends = [&](std::int64_t max) { return ends_within(part_ends_(max), begin, end); };
  const RoundedSum all = empty_sum(parameter, uses[0].device());
  add_terms(all, some, of_some, ends);
  if (all_finite(all.total)) return add_sum(parameter, all.total);
  for (std::size_t n = 0; n < units; ++n) {
    if (of_some.values[n] == 0) continue;
    std::vector<double> one(units, 0.0);
    one[n] = of_some.values[n];
    const Tensor alone = weighted_sum(some, weights_of(one));
    if (all_finite(alone)) {
      add_term(alone, sum_for(parameter));
    } else {
      ++statistics_.not_finite;
    }
  }
}

RoundedSum Clipper::empty_sum(const Parameter& parameter, Device device) const {
  return {zeros(parameter.value.shape(), Dtype::f64, device), spacing_for(parameter)};
}

double Clipper::spacing_for(const Parameter& parameter) const {
  if (parameter.value.dtype() == Dtype::f64) return 0;
  return sum_spacing(groups_[group_of(parameter)], options_.sum_size);
}

// Returns the parameter's sum, to be added to.
RoundedSum Clipper::sum_for(const Parameter& parameter) {
  const auto entry = std::find_if(sums_.begin(), sums_.end(),
                                  [&](const auto& e) { return e.first == &parameter; });
  if (!entry->second.defined()) {
    entry->second = zeros(parameter.value.shape(), Dtype::f64, parameter.value.device());
    label_for(parameter, MemoryKind::gradient, entry->second);
  }
  touched_ = touched_ || had_sum_[static_cast<std::size_t>(entry - sums_.begin())];
  return {entry->second, spacing_for(parameter)};
}

// Adds a sum whose terms are rounded already; it may become the parameter's own.
void Clipper::add_sum(const Parameter& parameter, const Tensor& total) {
  const auto entry = std::find_if(sums_.begin(), sums_.end(),
                                  [&](const auto& e) { return e.first == &parameter; });
  if (entry->second.defined()) {
    axpby(1, total, 1, sum_for(parameter).total);
  } else {
    label_for(parameter, MemoryKind::gradient, total);
    entry->second = total;
  }
}

}  // namespace sotto
