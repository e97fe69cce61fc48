// What a release changes beside the weights: the loss scale and the clip bounds that follow the
// released counts; and the check that there are weights worth another step.
#pragma once

#include <cstdint>

#include "dp/clipping/clipper.h"
#include "dp/engine/engine_options.h"
#include "dp/engine/engine_state.h"
#include "dp/engine/trained_parameters.h"
#include "dp/noise/mechanism.h"
#include "memory/loss_scale.h"
#include "nn/module.h"
#include "nn/optim/optimizer.h"

namespace sotto {

class Update {
 public:
  // All outlive this object; the clipper gets the loss scale.
  Update(nn::Module& model, nn::Optimizer& optimizer, Clipper& clipper,
         const EngineOptions& options);

  nn::Optimizer& optimizer() { return optimizer_; }
  const memory::LossScale& loss_scale() const { return loss_scale_; }
  // Throws std::invalid_argument if a trained parameter was replaced, or holds NaN or infinity:
  // further steps would spend privacy for no use. On a GPU values are read every 16 steps.
  void check_model(std::int64_t steps_made);
  // Adapts the clip bounds and the loss scale to the released counts.
  void adapt(const NoisyGradient& released);
  // The loss scale that continues from a state. Throws std::invalid_argument if there is none.
  memory::LossScale resumed(const EngineState::Scale& scale) const;
  void set_loss_scale(const memory::LossScale& scale);

 private:
  const EngineOptions& options_;
  nn::Module& model_;
  nn::Optimizer& optimizer_;
  Clipper& clipper_;
  memory::LossScale loss_scale_;
  TrainedParameters trained_;
};

}  // namespace sotto
