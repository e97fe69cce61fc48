// The content of a clipped sum, which clippers write and mechanisms read.
#pragma once

#include <optional>
#include <vector>

#include "autograd/parameter.h"
#include "autograd/per_sample/deferred_sum.h"
#include "dp/clipping/clipped_sum.h"
#include "dp/sampling/sampler.h"
#include "nn/optim/shards.h"

namespace sotto {

// For each sum, the one that is computed later in its place, or null.
using DeferredSums = std::vector<std::shared_ptr<const DeferredSum>>;

struct ClippedSum::Content {
  // f64 sums of whole parameters or, with shards, of the elements that this rank owns. Undefined
  // where the sum is deferred.
  Gradients sums;
  double sensitivity;
  // Centered counts: the sum over all units of 1/2 if the condition holds and -1/2 if not. The
  // condition is, for each group, a norm within the bound; for `finite`, a finite gradient.
  std::vector<double> unclipped;
  std::optional<double> finite;
  SampledBatch draw;
  std::shared_ptr<const nn::Shards> shards = nullptr;
  DeferredSums deferred = {};  // as many as sums, or none

  // Computes the sums that are deferred.
  void complete();
};

}  // namespace sotto
