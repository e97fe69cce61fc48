// Clip groups: sets of parameters that are clipped together, each with a clip bound.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "nn/module.h"

namespace sotto {

// Parameters that are clipped together: the norm of a unit's gradient over all of them is at most
// `bound` after clipping. The sensitivity of several groups is the square root of the sum of their
// squared bounds.
struct ClipGroup {
  std::vector<Parameter*> parameters = {};  // not owned
  double bound = 1;                         // from min_clip_bound to max_clip_bound

  // Returns the parameter's index in `parameters`; nullopt if the group does not contain it.
  std::optional<std::size_t> find(const Parameter& parameter) const;
};

// Returns the index of the group that contains the parameter. Throws std::invalid_argument, naming
// the parameter's module, if no group does.
std::size_t group_of(const std::vector<ClipGroup>& groups, const Parameter& parameter);

// The range of clip bounds: beyond it, sums in f32 overflow or lose their last digits.
inline constexpr double min_clip_bound = 0x1p-100, max_clip_bound = 0x1p100;

// Returns one group of all trainable parameters ("flat" clipping).
std::vector<ClipGroup> flat_group(const std::vector<Parameter*>& parameters, double bound);

// Returns one group for each module with trainable parameters of its own ("per-layer" clipping).
// The groups' bounds are equal, and their squares sum up to bound^2 (McMahan et al. 2018). A
// parameter that several modules share is in the group of the first.
std::vector<ClipGroup> layer_groups(const nn::NamedParameters& parameters, double bound);

// Returns one group per prefix: each trainable parameter belongs to the first prefix that its name
// starts with; those that match no prefix form one more group, the last. Bounds are equal, as in
// layer_groups(). Throws std::invalid_argument, naming the prefix, for a prefix without parameters.
std::vector<ClipGroup> named_groups(const nn::NamedParameters& parameters,
                                    const std::vector<std::string>& prefixes, double bound);

// Returns a bound on how much rounding may increase the norm of a group's clipped gradient,
// relative to the norm (docs/appendix/proofs-rounding.md).
double rounding_margin(const ClipGroup& group);

// Returns the sensitivity of an exact sum: the square root of the sum of the squared bounds.
double sensitivity_of(const std::vector<ClipGroup>& groups);

// The maximum number of units in a sum, and in one term of it, which is a block of units
// (SumBlocks).
struct SumSize {
  std::int64_t batch = std::int64_t{1} << 16;  // units
  std::int64_t block = 1;                      // units
};

// Returns the spacing of a group's sums for f32 parameters: a power of two. Terms are rounded to
// multiples of it, which f64 adds up exactly. Terms of f64 parameters are not rounded.
double sum_spacing(const ClipGroup& group, const SumSize& size);

// Returns a bound on how much rounding, within terms and of terms, may add to the sensitivity of a
// group's sum, relative to the clip bound (docs/appendix/proofs-rounding.md, "The sum over units").
double sum_rounding(const ClipGroup& group, const SumSize& size);

// Throws std::invalid_argument if the rounding of terms may exceed 2^-8 of the clip bound.
void check_sum_rounding(const ClipGroup& group, const SumSize& size);

// Returns the sensitivity of the computed sum over all groups, rounding included.
double rounded_sensitivity(const std::vector<ClipGroup>& groups, const SumSize& size);

}  // namespace sotto
