// The division of the trained parameters among the ranks of a distributed run: each element has one
// owner, which adds up the ranks' sums, draws the noise, and keeps the optimizer's state (ZeRO,
// Rajbhandari et al. 2020, stages 1 and 2).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "autograd/parameter.h"
#include "core/random/rounded_gaussian.h"
#include "core/ranks/ranks.h"

namespace sotto::nn {

// Elements first .. end - 1 of a tensor, in row-major order.
struct ElementRange {
  std::int64_t first = 0, end = 0;
  std::int64_t size() const { return end - first; }
};

// The part of `elements` elements that goes to owner `k` of `owners`. Parts are cut at multiples of
// Shards::group_elements, so that an element's noise does not depend on the owners.
ElementRange part_of(std::int64_t elements, int k, int owners);

// All ranks make one from the same parameters in the same order. Every function but range() and
// place() is collective.
class Shards {
 public:
  // Throws std::invalid_argument unless all values are row-major and on one device.
  Shards(std::shared_ptr<Ranks> ranks, const std::vector<const Parameter*>& parameters);
  // All ranges of a parameter begin at a multiple of it.
  static constexpr std::int64_t group_elements = RoundedGaussian::group_values;

  Ranks& ranks() const { return *ranks_; }
  // The device of the values.
  Device device() const { return device_; }
  // The elements of the parameter that this rank owns.
  ElementRange range(const Parameter& parameter) const { return range(parameter, ranks_->rank()); }
  ElementRange range(const Parameter& parameter, int rank) const;

  // The index of the parameter among the divided ones.
  int place(const Parameter& parameter) const { return places_.at(&parameter); }
  // All-gathers `each` numbers per group of group_elements of the parameter; `own` are those of
  // this rank's groups.
  std::vector<double> of_all_groups(const Parameter& parameter, std::span<const double> own,
                                    std::int64_t each) const;
  // Gathers the ranks' own elements into a tensor of the parameter's shape, on the CPU of rank 0;
  // undefined on every other rank.
  Tensor whole(const Parameter& parameter, const Tensor& own) const;
  // Scatters rank 0's tensor: returns this rank's own elements, [elements] on the CPU.
  Tensor part(const Parameter& parameter, const Tensor& whole, Dtype dtype) const;

 private:
  std::shared_ptr<Ranks> ranks_;
  Device device_;
  std::unordered_map<const Parameter*, int> places_;
};

}  // namespace sotto::nn
