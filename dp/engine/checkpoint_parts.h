// The parts of a training checkpoint, of private and of ordinary training.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/io/safetensors.h"
#include "dp/engine/engine.h"
#include "dp/engine/learner.h"
#include "nn/optim/moving_average.h"

namespace sotto {

// Steps of an engine or of ordinary training: their checkpoints differ in these members.
struct CheckpointedSteps {
  std::shared_ptr<Ranks> ranks;
  // The state on rank 0, and its loading. Collective.
  std::function<TensorFile()> state;
  std::function<void(const TensorFile&)> load_state;
};
CheckpointedSteps checkpointed(Engine& engine);

// The file's contents, on rank 0, of which `of_steps` are the steps'. Collective. Null: no average,
// no learner.
TensorFile checkpoint_file(TensorFile of_steps, nn::Module& model, const nn::Optimizer& optimizer,
                           const nn::MovingAverage* average, const Learner* learner);
// load_checkpoint() (dp/engine/training_checkpoint.h) of these steps.
bool load_checkpoint(const std::string& path, const CheckpointedSteps& steps, nn::Module& model,
                     nn::Optimizer& optimizer, nn::MovingAverage* average, Learner* learner);

}  // namespace sotto
