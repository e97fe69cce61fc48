// How a clipper clips: rule, norms, and what its sums have room for.
#pragma once

#include <cstddef>

#include "autograd/per_sample/per_sample_grad.h"
#include "dp/clipping/clip_groups.h"
#include "dp/clipping/clip_rule.h"

namespace sotto {

struct ClipOptions {
  ClipRule rule = {};
  NormMethod norm_method = NormMethod::automatic;
  // Bytes of materialized per-sample gradients that may be kept until norms are known.
  std::size_t per_sample_grad_budget = std::size_t{512} << 20;
  // Whether the number of units whose gradient was finite may be released with the sum.
  bool count_finite = false;
  // The most units that a batch may have, and that may be in a block (Clipper::begin). The larger
  // the batch, the coarser are the multiples that its sum is made of; blocks of more than one unit
  // cost a little sensitivity. Engine sets both.
  SumSize sum_size = {};
};

// One pass keeps factors or per-sample gradients until a group's norms are known (book-keeping, Bu
// et al. 2022). Two passes keep nothing: norms first, then backward again with weights (ghost
// clipping, Li et al. 2022). The result is the same up to rounding.
enum class ClipPasses { one, two };

}  // namespace sotto
