// Options of a clipper: clip rule, norm method, and the maximum sizes of its sums.
#pragma once

#include <cstddef>
#include <optional>

#include "autograd/per_sample/cost_model.h"
#include "core/device.h"
#include "dp/clipping/clip_groups.h"
#include "dp/clipping/clip_rule.h"

namespace sotto {

// Options of a Clipper: rule, norm method, budget and the size of sums.
struct ClipOptions {
  ClipRule rule = {};                              // from norm to factor
  NormMethod norm_method = NormMethod::automatic;  // ghost, materialize, or the cheaper
  // Maximum bytes of materialized per-sample gradients that are kept until norms are known. Unset:
  // automatic_grad_budget() of what the device has free at the first physical batch.
  std::optional<std::size_t> per_sample_grad_budget = {};
  // Allows Mechanism::release to release the number of units with a finite gradient, with noise.
  bool count_finite = false;
  // The maximum number of units in a batch, and in a block (Clipper::begin). A larger batch means
  // coarser rounding of its sum; blocks of more than one unit add a little to the sensitivity. The
  // engine sets both.
  SumSize sum_size = {};
};

// The budget where none is given: 512 MiB on a CPU; on a GPU the largest power of two that is at
// most half of the `free` bytes. Powers of two, since steps of one run, or of a resumed one, find
// hardly equal bytes free, and should make equal choices.
std::size_t automatic_grad_budget(Device device, std::size_t free);

// The budget of a clipper. An automatic one is found at the first call, so that all physical
// batches, and replays of captured ones, make equal choices.
class GradBudget {
 public:
  // The options' budget, or the automatic one for parameters on the device.
  std::size_t bytes(const ClipOptions& options, Device device);

 private:
  std::optional<std::size_t> automatic_;
};

// The number of backward passes. One pass keeps factors or per-sample gradients until a group's
// norms are known (book-keeping, Bu et al. 2022). Two passes keep none: the first computes norms,
// the second weighted sums (ghost clipping, Li et al. 2022). Results are equal up to rounding.
enum class ClipPasses { one, two };

}  // namespace sotto
