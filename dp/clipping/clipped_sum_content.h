// The content of a clipped sum, which clippers write and mechanisms read.
#pragma once

#include <optional>
#include <vector>

#include "autograd/parameter.h"
#include "dp/clipping/clipped_sum.h"
#include "dp/sampling/sampler.h"
#include "nn/optim/shards.h"

namespace sotto {

struct ClippedSum::Content {
  // f64 sums of whole parameters or, with shards, of the elements that this rank owns.
  Gradients sums;
  double sensitivity;
  // Centered counts: the sum over all units of 1/2 if the condition holds and -1/2 if not. The
  // condition is, for each group, a norm within the bound; for `finite`, a finite gradient.
  std::vector<double> unclipped;
  std::optional<double> finite;
  SampledBatch draw;
  std::shared_ptr<const nn::Shards> shards = nullptr;
};

}  // namespace sotto
