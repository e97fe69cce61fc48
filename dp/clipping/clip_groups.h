// Clip groups: which parameters are clipped together, and how a bound is shared among groups.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "nn/module.h"

namespace sotto {

// Parameters that are clipped together. The sensitivity of several groups is the square root of the
// sum of their squared bounds.
struct ClipGroup {
  std::vector<Parameter*> parameters = {};
  double bound = 1;

  // Returns the parameter's place in the group; nothing where it is not in it.
  std::optional<std::size_t> find(const Parameter& parameter) const;
};

// Returns the group that a parameter is in. Throws std::invalid_argument, with the module that the
// parameter belongs to, where it is in none.
std::size_t group_of(const std::vector<ClipGroup>& groups, const Parameter& parameter);

// The range of clip bounds: beyond it, sums in f32 overflow or lose their last digits.
inline constexpr double min_clip_bound = 0x1p-100, max_clip_bound = 0x1p100;

// One group of all parameters that are trained.
std::vector<ClipGroup> flat_group(const std::vector<Parameter*>& parameters, double bound);

// A group for each module that has parameters of its own which are trained ("per layer"), with
// equal bounds whose squares sum up to bound^2 (McMahan et al. 2018). A parameter that several
// modules share is in the group of the first.
std::vector<ClipGroup> layer_groups(const nn::NamedParameters& parameters, double bound);

// Groups by names: each trained parameter belongs to the first prefix that its name starts with,
// and to a last group when it starts with none. Equal bounds as above. Throws
// std::invalid_argument, naming the prefix, when no trained parameter belongs to it.
std::vector<ClipGroup> named_groups(const nn::NamedParameters& parameters,
                                    const std::vector<std::string>& prefixes, double bound);

// Returns what rounding may add to the norm of a group's clipped gradient, relative to the norm
// (docs/appendix/proofs-rounding.md).
double rounding_margin(const ClipGroup& group);

// Returns the square root of the sum of the squared bounds: the sensitivity of an exact sum.
double sensitivity_of(const std::vector<ClipGroup>& groups);

// A sum is of at most `batch` units, and each of its terms of at most `block` (SumBlocks).
struct SumSize {
  std::int64_t batch = std::int64_t{1} << 16;
  std::int64_t block = 1;
};

// Returns the spacing of a group's sums for parameters in f32: a power of two. Terms are rounded to
// its multiples, which f64 adds up exactly. Terms of parameters in f64 are not rounded.
double sum_spacing(const ClipGroup& group, const SumSize& size);

// Returns how much rounding may add to the sensitivity of a group's sum, relative to the bound:
// within terms, and of them (docs/appendix/proofs-rounding.md, "The sum over units").
double sum_rounding(const ClipGroup& group, const SumSize& size);

// Throws std::invalid_argument where the rounding of terms is more than 2^-8 of a bound.
void check_sum_rounding(const ClipGroup& group, const SumSize& size);

// Returns the sensitivity of the sum as it is computed: of all groups, rounding included.
double rounded_sensitivity(const std::vector<ClipGroup>& groups, const SumSize& size);

}  // namespace sotto
