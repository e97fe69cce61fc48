// Checks that a timed step is correct: compares its sums with those of each sample alone, or writes
// them for another framework to compare its own with (peers.py).
#pragma once

#include <string>
#include <vector>

#include "dp/clipping/clipper.h"
#include "samples/models/registry.h"

namespace sotto {

// By how much a clipped sum may be shorter than the gradients clipped by their exact norms: what
// rounding may take is charged to every norm (docs/appendix/proofs-rounding.md).
inline constexpr double max_shortening = 0.05;

// For a step on some samples: |sum - s expected| / |expected| over all parameters, where `expected`
// is the sum of the gradients of each sample alone, in f64, each clipped to its group's bound, and
// s the best factor from 1 - max_shortening to 1. Without groups: for an ordinary step, and s is 1.
// The samples are on the model's device.
double step_error(nn::Module& model, const models::Entry& entry, const models::Examples& samples,
                  Dtype precision, const std::vector<ClipGroup>& groups, const ClipOptions& options,
                  ClipPasses passes);

// Writes a safetensors file: the samples as `inputs` and `labels`; of each parameter its value as
// `parameters/NAME`, the norm of the gradient of the samples' mean loss as `norms/NAME`, and the
// sum of the samples' gradients, each clipped to `clip_bound` over all parameters, as
// `clipped/NAME`, all computed in `precision`; and as metadata `loss`, that mean, and `clip_bound`.
// Returns the loss.
double write_reference(const std::string& path, nn::Module& model, const models::Entry& entry,
                       const models::Examples& samples, Dtype precision, double clip_bound);

}  // namespace sotto
