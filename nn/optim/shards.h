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

  // The place of the parameter among those that are divided.
  int place(const Parameter& parameter) const { return places_.at(&parameter); }
  // Returns `each` numbers for every group of group_elements of the parameter, in their order, of
  // which each rank passes those of the elements that it owns.
  std::vector<double> of_all_groups(const Parameter& parameter, std::span<const double> own,
                                    std::int64_t each) const;
  // Returns the tensor, of the parameter's shape, of which each rank passes its own elements, on
  // the CPU of rank 0; undefined on the others.
  Tensor whole(const Parameter& parameter, const Tensor& own) const;
  // The reverse: returns this rank's own elements, [elements] on the CPU, of a tensor that rank 0
  // passes.
  Tensor part(const Parameter& parameter, const Tensor& whole, Dtype dtype) const;

 private:
  std::shared_ptr<Ranks> ranks_;
  Device device_;
  std::unordered_map<const Parameter*, int> places_;
};

}  // namespace sotto::nn
