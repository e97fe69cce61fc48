#include "samples/models/step_bytes.h"

#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "dp/clipping/clip_groups.h"
#include "dp/clipping/clipper.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/sampling/sampler.h"
#include "memory/checkpointing/model_checkpoints.h"
#include "nn/optim/update_sink.h"

namespace sotto::models {

namespace {

std::size_t in_use() { return allocator(cpu).statistics().current; }

template <class Rule>
std::unique_ptr<nn::Optimizer> made(nn::Module& model, const Rule& rule, bool bf16_state) {
  using Optimizer = nn::RuleOptimizer<Rule>;
  return std::make_unique<Optimizer>(
      std::vector<typename Optimizer::Group>{{model.parameters(), rule, bf16_state}});
}

std::unique_ptr<nn::Optimizer> optimizer_for(nn::Module& model, const StepSetting& setting) {
  constexpr double momentum = 0.9;
  if (setting.optimizer == StepOptimizer::adam)
    return made(model, nn::AdamRule<false>{}, setting.bf16_state);
  return made(model,
              nn::SgdRule{.momentum = setting.optimizer == StepOptimizer::momentum ? momentum : 0},
              setting.bf16_state);
}

std::vector<ClipGroup> groups_for(nn::Module& model, StepPrivacy privacy) {
  if (privacy == StepPrivacy::by_layer) return layer_groups(model.named_parameters(), 1);
  return flat_group(model.parameters(), 1);
}

}  // namespace

double StepBytes::seconds() const {
  double total = 0;
  for (const memory::PhaseTotal& phase : phases) total += phase.seconds;
  return total;
}

StepRun::StepRun(const std::function<std::unique_ptr<nn::Module>()>& make, const Loss& loss,
                 const StepSetting& setting)
    : setting_(setting), loss_(loss) {
  check(setting.accumulation >= 1, "step: {} physical batches", setting.accumulation);
  check(
      !setting.fused_update || (setting.accumulation == 1 && setting.privacy == StepPrivacy::none),
      "step: a fused update goes with neither accumulation nor privacy");
  std::size_t start = in_use();
  model_ = make();
  memory::set_checkpoints(*model_, setting.checkpoint,
                          setting.privacy == StepPrivacy::two_passes ? memory::BackwardPasses::two
                                                                     : memory::BackwardPasses::one);
  const std::size_t parameters = in_use() - start;
  optimizer_ = optimizer_for(*model_, setting);
  start = in_use();
  step(2 * setting.accumulation);
  bytes_.parameters = parameters;
  bytes_.state = in_use() - start;
}

Var StepRun::forward(Tape& tape, std::int64_t n) {
  phases_.enter("forward");
  const std::size_t start = in_use();
  Var losses = loss_(*model_, tape, n);
  bytes_.kept = in_use() - start;
  phases_.enter("backward");
  return losses;
}

void StepRun::ordinary(std::int64_t batch) {
  const std::size_t start = in_use();
  SumSink sums;
  nn::UpdateSink updates(*optimizer_);
  GradSink& sink = setting_.fused_update ? static_cast<GradSink&>(updates) : sums;
  for (std::int64_t part = 0; part < setting_.accumulation; ++part) {
    Tape tape({.precision = setting_.precision});
    const Var losses = forward(tape, batch / setting_.accumulation);
    tape.backward(losses, sink, 1.0 / static_cast<double>(batch));
  }
  bytes_.gradients = in_use() - start;
  phases_.enter("update");
  if (!setting_.fused_update) optimizer_->step(sums.gradients());
}

void StepRun::privately(std::int64_t batch) {
  const std::size_t start = in_use();
  const bool twice = setting_.privacy == StepPrivacy::two_passes;
  Clipper clipper(groups_for(*model_, setting_.privacy), {},
                  twice ? ClipPasses::two : ClipPasses::one);
  for (std::int64_t part = 0; part < setting_.accumulation; ++part) {
    Tape tape({.private_data = true, .precision = setting_.precision});
    const Var losses = forward(tape, batch / setting_.accumulation);
    clipper.add(tape, losses);
  }
  bytes_.gradients = in_use() - start;
  phases_.enter("update");
  Ledger ledger;
  GaussianMechanism mechanism(1);
  mechanism.update(clipper.finish(FullBatchSampler(batch).draw()), ledger, *optimizer_);
}

StepBytes StepRun::step(std::int64_t batch) {
  check(batch >= 1 && batch % setting_.accumulation == 0, "step: {} samples in {} physical batches",
        batch, setting_.accumulation);
  phases_ = memory::PhaseProfiler();
  bytes_.before = in_use();
  if (setting_.privacy == StepPrivacy::none) {
    ordinary(batch);
  } else {
    privately(batch);
  }
  phases_.stop();
  bytes_.phases = phases_.totals();
  bytes_.peak = phases_.peak_bytes();
  return bytes_;
}

}  // namespace sotto::models
