#include "dp/engine/update.h"

#include "memory/planning/planner.h"

namespace sotto {

Update::Update(nn::Module& model, nn::Optimizer& optimizer, Clipper& clipper,
               const EngineOptions& options)
    : options_(options),
      model_(model),
      optimizer_(optimizer),
      clipper_(clipper),
      loss_scale_(options.loss_scaling, options.memory.precision.value_or(Dtype::f32)),
      trained_(model) {
  clipper_.set_loss_scale(loss_scale_.value());
}

void Update::check_model(std::int64_t steps_made) {
  const bool assigned = trained_.check_same(model_);
  constexpr std::int64_t steps_on_gpu = 16;
  if (assigned || memory::device_of(optimizer_) == cpu || steps_made % steps_on_gpu == 0)
    trained_.check_finite();
}

void Update::adapt(const NoisyGradient& released) {
  if (options_.adaptive_clipping)
    clipper_.set_bounds(
        options_.adaptive_clipping->next(clipper_.bounds(), released.unclipped_fraction()));
  if (released.finite()) {
    loss_scale_.follow(*released.finite());
    clipper_.set_loss_scale(loss_scale_.value());
  }
}

memory::LossScale Update::resumed(const EngineState::Scale& scale) const {
  memory::LossScale resumed = loss_scale_;
  if (options_.loss_scaling.adjust != memory::LossScaling::Adjust::never)
    resumed.resume(scale.value, scale.good_steps);
  return resumed;
}

void Update::set_loss_scale(const memory::LossScale& scale) {
  clipper_.set_loss_scale(scale.value());
  loss_scale_ = scale;
}

}  // namespace sotto
