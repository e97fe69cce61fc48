// The interface between backward and clipping: it takes the gradients of one physical batch, group
// by group, and adds clipped sums to a ClipAccumulator. HostGroupClipper and GpuGroupClipper
// implement it.
#pragma once

#include <algorithm>
#include <vector>

#include "autograd/per_sample/per_sample_grad.h"
#include "dp/clipping/clip_options.h"
#include "dp/clipping/parameter_gradients.h"

namespace sotto {

// Weights of units in [0, 1], by which their clipped gradients in some groups are multiplied.
struct UnitWeights {
  std::vector<double> values;
  std::vector<char> groups;  // by group: whether they apply
};

// One physical batch, and the options for clipping it.
struct ClipBatch {
  const std::vector<ClipGroup>& groups;
  const ClipOptions& options;
  std::size_t per_sample_grad_budget = 0;  // bytes, of the largest physical batch
  ClipPasses passes = ClipPasses::one;
  double loss_scale = 1;
  std::int64_t units = 0;
  std::int64_t max_units = 0;  // of any physical batch; 0: unknown
  BlockEnds ends = {};         // of the blocks of its units; empty: every unit is a term
  UnitWeights weights = {};    // no values: all 1
  bool last = false;           // whether its units are the last that this rank adds to the batch
  bool deferred = false;       // whether its units are all of the batch, whose sums may come later

  // Returns the maximum bytes of materialized gradients for `count` units: their share of the
  // budget of the largest physical batch. The size of the actual batch must not decide what is
  // materialized: the rounding of a unit's gradient would depend on the number of other units.
  std::size_t budget_for(std::int64_t count) const {
    const auto all = static_cast<std::size_t>(std::max<std::int64_t>({count, max_units, 1}));
    return per_sample_grad_budget / all * static_cast<std::size_t>(count);
  }
};

class GroupClipper {
 public:
  virtual ~GroupClipper() = default;
  // Called in this order for each group: norms() adds each parameter's gradients to the units'
  // norms, factors() computes clip factors from the norms, and sums() adds each parameter's
  // gradients times the factors to the accumulator.
  virtual void norms(std::size_t group, const Parameter& parameter,
                     const std::vector<PerSampleGrad>& uses) = 0;
  virtual void factors(std::size_t group) = 0;
  virtual void sums(std::size_t group, Parameter& parameter,
                    const std::vector<PerSampleGrad>& uses) = 0;
  // Does all three steps for all gradients of a group. Without gradients the group's norms are 0.
  virtual void clip(std::size_t group, ParameterUses gradients) = 0;
  // Ends the physical batch: afterwards all groups given to clip() are in the accumulator.
  virtual void finish() {}
};

}  // namespace sotto
