// Whether a step does what it is timed for: its sums beside those of each sample alone.
#pragma once

#include <vector>

#include "dp/clipping/clipper.h"
#include "samples/models/registry.h"

namespace sotto {

// Of a step on some samples: |sum - expected| / |expected| over all parameters, where `expected` is
// the sum of the gradients of each sample alone, in double, each clipped by its group's bound.
// Without groups: of an ordinary step. The samples lie on the model's device.
double step_error(nn::Module& model, const models::Entry& entry, const models::Examples& samples,
                  Dtype precision, const std::vector<ClipGroup>& groups, const ClipOptions& options,
                  ClipPasses passes);

}  // namespace sotto
