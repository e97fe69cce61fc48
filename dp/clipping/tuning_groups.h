// Clip bounds of a pretrained model's head and of its body. Under one bound, a new head's gradient,
// which is the longer, would leave the body's below the noise.
#pragma once

#include <vector>

#include "dp/clipping/clip_groups.h"
#include "nn/models/pretrained_model.h"

namespace sotto {

struct TuningBounds {
  double body = 1;  // of what is trained outside of the head
  double head = 1;  // of the head
};

// Returns a group of the trained parameters of the head (ModelParts) and one of the others, in the
// order body, head; one group where only one is trained. Make them after apply_tuning(). Throws
// std::invalid_argument if nothing is trained.
std::vector<ClipGroup> tuning_groups(nn::PretrainedModel& model, const TuningBounds& bounds);
// The same for any module whose parts the caller names.
std::vector<ClipGroup> tuning_groups(nn::Module& model, const nn::ModelParts& parts,
                                     const TuningBounds& bounds);

}  // namespace sotto
