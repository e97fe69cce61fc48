// Checks that a timed step is correct: compares its sums with those of each sample alone.
#pragma once

#include <vector>

#include "dp/clipping/clipper.h"
#include "samples/models/registry.h"

namespace sotto {

// For a step on some samples: |sum - expected| / |expected| over all parameters, where `expected`
// is the sum of the gradients of each sample alone, in f64, each clipped to its group's bound.
// Without groups: for an ordinary step. The samples are on the model's device.
double step_error(nn::Module& model, const models::Entry& entry, const models::Examples& samples,
                  Dtype precision, const std::vector<ClipGroup>& groups, const ClipOptions& options,
                  ClipPasses passes);

}  // namespace sotto
