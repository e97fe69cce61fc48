#include "dp/engine/engine.h"

#include <utility>

#include "dp/engine/dataset_units.h"
#include "dp/engine/engine_parts.h"
#include "nn/optim/optimizer.h"

namespace sotto {

Engine::Engine(nn::Module& model, nn::Optimizer& optimizer, std::int64_t population,
               const Ledger& ledger, const EngineOptions& options)
    : parts_(Parts::make(model, optimizer, population, nullptr, ledger, options)) {}

Engine::Engine(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data,
               const Ledger& ledger, const EngineOptions& options)
    : parts_(Parts::make(model, optimizer, data.unit_count(), &data, ledger,
                         with_units_of(data, options))) {}

Engine::~Engine() = default;

bool Engine::can_step() const {
  const OneUser::Call call(parts_->user(), "Engine::can_step", OneUser::Access::reads);
  return parts_->can_step();
}

StepReport Engine::step(const Loss& loss) {
  const OneUser::Call call(parts_->user(), "Engine::step", OneUser::Access::changes);
  return parts_->step(loss);
}

std::optional<StepReport> Engine::next_step(const Loss& loss) {
  if (!can_step()) return std::nullopt;
  try {
    return step(loss);
  } catch (const std::invalid_argument&) {
    if (can_step()) throw;
    return std::nullopt;
  }
}

std::vector<double> Engine::release_means(const MeanQuery& query) {
  const OneUser::Call call(parts_->user(), "Engine::release_means", OneUser::Access::changes);
  return parts_->release_means(query);
}

double Engine::epsilon() const {
  const OneUser::Call call(parts_->user(), "Engine::epsilon", OneUser::Access::reads);
  return parts_->release().budget().epsilon();
}

PrivacyStatement Engine::report() const {
  const OneUser::Call call(parts_->user(), "Engine::report", OneUser::Access::reads);
  const Release& release = parts_->release();
  return privacy_statement({.options = parts_->options(),
                            .ledger = release.ledger(),
                            .budget = release.budget(),
                            .sampler = release.sampler(),
                            .clipper = release.clipper(),
                            .mechanism = release.mechanism()});
}

TensorFile Engine::state() const {
  const OneUser::Call call(parts_->user(), "Engine::state", OneUser::Access::reads);
  return parts_->state();
}

void Engine::load_state(const TensorFile& file) {
  const OneUser::Call call(parts_->user(), "Engine::load_state", OneUser::Access::changes);
  parts_->load(file);
}

std::shared_ptr<Ranks> Engine::ranks() const { return parts_->options().ranks; }
double Engine::delta() const { return parts_->options().delta; }
Ledger Engine::ledger() const { return parts_->release().ledger(); }
const EngineOptions& Engine::options() const { return parts_->options(); }
double Engine::noise_multiplier() const { return parts_->noise_multiplier(); }
const Sampler& Engine::sampler() const { return parts_->release().sampler(); }
const Mechanism& Engine::mechanism() const { return parts_->release().mechanism(); }
const Clipper& Engine::clipper() const { return parts_->release().clipper(); }
const memory::LossScale& Engine::loss_scale() const { return parts_->update().loss_scale(); }
std::int64_t Engine::steps_made() const { return parts_->steps_made(); }
const memory::PhaseProfiler& Engine::phases() const { return parts_->phases(); }
std::int64_t Engine::means_released() const { return parts_->means_released(); }
const std::vector<std::string>& Engine::changes() const { return parts_->changes(); }
std::optional<std::int64_t> Engine::physical_batch() const { return parts_->batches().rows(); }
const memory::Plan* Engine::memory_plan() const {
  const std::optional<memory::Plan>& plan = parts_->planning().plan();
  return plan ? &*plan : nullptr;
}

}  // namespace sotto
