// The seam between backward and the place where gradients are clipped: gradients of one physical
// batch go in, group by group, and clipped sums come out in a ClipAccumulator. Its bodies are
// HostGroupClipper and GpuGroupClipper.
#pragma once

#include <algorithm>
#include <vector>

#include "dp/clipping/clip_options.h"
#include "dp/clipping/parameter_gradients.h"

namespace sotto {

// One physical batch, and how it is clipped.
struct ClipBatch {
  const std::vector<ClipGroup>& groups;
  const ClipOptions& options;
  ClipPasses passes = ClipPasses::one;
  double loss_scale = 1;
  std::int64_t units = 0;
  std::int64_t max_units = 0;  // of any physical batch, or 0: not known
  BlockEnds ends = {};         // of the blocks of its units; empty: every unit is a term

  // Returns the bytes of materialized gradients that `count` units may take: their share of the
  // budget of the largest physical batch. If the size of this batch decided what is materialized,
  // the rounding of a unit's gradient would show how many others there are.
  std::size_t budget_for(std::int64_t count) const {
    const auto all = static_cast<std::size_t>(std::max<std::int64_t>({count, max_units, 1}));
    return options.per_sample_grad_budget / all * static_cast<std::size_t>(count);
  }
};

class GroupClipper {
 public:
  virtual ~GroupClipper() = default;
  // In this order for each group: its parameters' gradients are added to the units' norms, the
  // norms become clip factors, and gradients times factors are added to the sums.
  virtual void norms(std::size_t group, const Parameter& parameter,
                     const std::vector<PerSampleGrad>& uses) = 0;
  virtual void factors(std::size_t group) = 0;
  virtual void sums(std::size_t group, Parameter& parameter,
                    const std::vector<PerSampleGrad>& uses) = 0;
  // All three, for all gradients of a group. Without gradients the group's norms are 0.
  virtual void clip(std::size_t group, ParameterUses gradients) = 0;
  // All that clip() was given is in the accumulator.
  virtual void finish() {}
};

}  // namespace sotto
