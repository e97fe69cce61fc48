// Options of a clipper: clip rule, norm method, and the maximum sizes of its sums.
#pragma once

#include <cstddef>

#include "autograd/per_sample/per_sample_grad.h"
#include "dp/clipping/clip_groups.h"
#include "dp/clipping/clip_rule.h"

namespace sotto {

// Options of a Clipper: rule, norm method, budget and the size of sums.
struct ClipOptions {
  ClipRule rule = {};                              // from norm to factor
  NormMethod norm_method = NormMethod::automatic;  // ghost, materialize, or the cheaper
  // Maximum bytes of materialized per-sample gradients that are kept until norms are known.
  std::size_t per_sample_grad_budget = std::size_t{512} << 20;
  // Allows Mechanism::release to release the number of units with a finite gradient, with noise.
  bool count_finite = false;
  // The maximum number of units in a batch, and in a block (Clipper::begin). A larger batch means
  // coarser rounding of its sum; blocks of more than one unit add a little to the sensitivity. The
  // engine sets both.
  SumSize sum_size = {};
};

// The number of backward passes. One pass keeps factors or per-sample gradients until a group's
// norms are known (book-keeping, Bu et al. 2022). Two passes keep none: the first computes norms,
// the second weighted sums (ghost clipping, Li et al. 2022). Results are equal up to rounding.
enum class ClipPasses { one, two };

}  // namespace sotto
