#include "dp/clipping/tuning_groups.h"

#include <algorithm>

#include "core/error.h"

namespace sotto {

std::vector<ClipGroup> tuning_groups(nn::PretrainedModel& model, const TuningBounds& bounds) {
  return tuning_groups(model, model.parts(), bounds);
}

std::vector<ClipGroup> tuning_groups(nn::Module& model, const nn::ModelParts& parts,
                                     const TuningBounds& bounds) {
  std::vector<ClipGroup> groups{{{}, bounds.body}, {{}, bounds.head}};
  for (const auto& [path, parameter] : model.named_parameters()) {
    if (parameter->trainable) groups[parts.in_head(path) ? 1 : 0].parameters.push_back(parameter);
  }
  std::erase_if(groups, [](const ClipGroup& group) { return group.parameters.empty(); });
  check(!groups.empty(), "tuning_groups: nothing is trained");
  return groups;
}

}  // namespace sotto
