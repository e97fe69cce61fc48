#include "dp/engine/shared_run.h"

#include <optional>

#include "core/ranks/on_rank_0.h"

namespace sotto::inline dp {

SharedRun::SharedRun(std::shared_ptr<Ranks> ranks, nn::Optimizer& optimizer)
    : ranks_(std::move(ranks)),
      shards_(std::make_shared<nn::Shards>(ranks_, optimizer.parameters())) {
  optimizer.divide(shards_);
}

std::unique_ptr<Sampler> SharedRun::sampler_for(std::unique_ptr<Sampler> sampler) const {
  if (leads()) return sampler;
  return std::make_unique<ToldSampler>(std::move(sampler));
}

SampledBatch SharedRun::draw(Sampler& sampler, const std::function<StepOrder()>& decide,
                             StepOrder& order) {
  std::optional<SampledBatch> drawn;
  UnpackedValues told(on_rank_0(*ranks_, "Engine::step", [&] {
    PackedValues values;
    const StepOrder decided = decide();
    const SamplerState before = sampler.state();
    drawn = sampler.draw();
    values.add(decided.steps_made);
    values.add(decided.noise_multiplier);
    values.add(decided.loss_scale);
    values.add_all(decided.bounds);
    values.add(before.index_in_epoch);
    values.add(before.pass);
    values.add(before.number);
    values.add_all(drawn->units());
    return std::move(values).take();
  }));
  order.steps_made = told.take<std::int64_t>();
  order.noise_multiplier = told.take<double>();
  order.loss_scale = told.take<double>();
  order.bounds = told.take_all<std::vector<double>>();
  if (drawn) return std::move(*drawn);
  const auto index_in_epoch = told.take<std::int64_t>();
  const auto pass = told.take<std::uint64_t>(), number = told.take<std::uint64_t>();
  dynamic_cast<ToldSampler&>(sampler).tell(index_in_epoch, pass, number,
                                           told.take_all<std::vector<std::int64_t>>());
  return sampler.draw();
}

RunProgress SharedRun::tell(const RunProgress& progress) const {
  PackedValues values;
  values.add(progress.steps_made);
  values.add(progress.first_noise);
  values.add(progress.may_step);
  UnpackedValues told(ranks_->tell("Engine: progress", std::move(values).take()));
  RunProgress of_rank_0;
  of_rank_0.steps_made = told.take<std::int64_t>();
  of_rank_0.first_noise = told.take<double>();
  of_rank_0.may_step = told.take<bool>();
  return of_rank_0;
}

}  // namespace sotto::inline dp
