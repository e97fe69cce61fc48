#include "dp/engine/engine_parts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/join.h"
#include "core/ranks/collectives.h"
#include "core/ranks/one_rank.h"
#include "dp/engine/rank_agreement.h"
#include "dp/engine/validation.h"
#include "dp/noise/noise_grid.h"
#include "dp/numerics/directed_rounding.h"

namespace sotto {

namespace {

EngineOptions validated(nn::Module& model, const nn::Optimizer& optimizer, std::int64_t population,
                        const Dataset* data, const Ledger& ledger, const EngineOptions& options) {
  EngineOptions checked = options;
  if (!checked.ranks) checked.ranks = ledger.ranks();
  std::vector<std::string> problems =
      engine_problems(model, optimizer, population, checked, ledger.header());
  checked.ranks = ranks_or_one(checked.ranks);
  if (checked.ranks->size() == 1) {
    check(problems.empty(), "Engine: {}", join(problems, "\nEngine: "));
    return checked;
  }
  check_agreement(model, optimizer, population, data, checked, ledger, std::move(problems));
  // The noise multiplier that rank 0 calibrates comes by share_progress().
  if (checked.ranks->rank() != 0) checked.noise_multiplier = options.noise_multiplier.value_or(1);
  return checked;
}

// True if unit k consists of row k, for all rows.
bool one_row_each(const Grouping& grouping) {
  for (std::size_t row = 0; row < grouping.unit_of_row.size(); ++row) {
    if (grouping.unit_of_row[row] != static_cast<std::int64_t>(row)) return false;
  }
  return grouping.units == static_cast<std::int64_t>(grouping.unit_of_row.size());
}

// Returns the maximum number of units in a batch: the population for planned batches, otherwise a
// number that is exceeded with a probability below e^-1000.
std::int64_t max_batch_size(const Sampler& sampler) {
  if (sampler.sampling() == Sampling::planned) return sampler.population();
  constexpr double small = 4096;
  const double large = std::ceil(4 * sampler.expected_batch_size() + small);
  return std::min(sampler.population(), static_cast<std::int64_t>(large));
}

std::unique_ptr<Sampler> sampler_of(const SharedRun* shared, std::unique_ptr<Sampler> sampler) {
  return shared != nullptr ? shared->sampler_for(std::move(sampler)) : std::move(sampler);
}

ClipOptions clip_options(const EngineOptions& options, const Sampler& sampler) {
  ClipOptions clipping = options.clipping;
  clipping.count_finite = counts_finite(options);
  clipping.sum_size = {.batch = max_batch_size(sampler),
                       .block = options.rows_of_unit ? 1 : SumBlocks::Limits{}.units};
  return clipping;
}

}  // namespace

std::unique_ptr<Engine::Parts> Engine::Parts::make(nn::Module& model, nn::Optimizer& optimizer,
                                                   std::int64_t population, const Dataset* data,
                                                   const Ledger& ledger,
                                                   const EngineOptions& options) {
  const EngineOptions checked = validated(model, optimizer, population, data, ledger, options);
  std::unique_ptr<Parts> parts;
  const auto construct = [&] {
    parts = std::make_unique<Parts>(model, optimizer, population, data, ledger, checked);
  };
  abort_on_error(*checked.ranks, construct);
  return parts;
}

Engine::Parts::Parts(nn::Module& trained_model, nn::Optimizer& its_optimizer,
                     std::int64_t population, const Dataset* its_data, const Ledger& run,
                     const EngineOptions& checked)
    : options(checked),
      model(trained_model),
      optimizer(its_optimizer),
      ledger(run),
      shared(options.ranks->size() > 1 ? std::make_unique<SharedRun>(options.ranks, optimizer)
                                       : nullptr),
      sampler(sampler_of(shared.get(), make_sampler(population, sampler_options(options)))),
      clipper(clip_groups(model, options), clip_options(options, *sampler),
              options.passes.value_or(ClipPasses::one)),
      loss_scale(options.loss_scaling, options.memory.precision.value_or(Dtype::f32)),
      initial_bounds(clipper.bounds()),
      noise(options, *sampler, ledger),
      mechanism(noise.make_mechanism()),
      budget(ledger, accountant_factory(options.accountant, ledger.header().relation),
             options.delta, options.target_epsilon),
      batches(options, *sampler, memory::device_of(optimizer)),
      planning({options, model, optimizer, clipper, batches}),
      data(its_data != nullptr ? std::optional(*its_data) : std::nullopt),
      facts(option_facts(model, population, options)),
      phases({memory::device_of(optimizer)}) {
  clipper.set_loss_scale(loss_scale.value());
  const std::vector<Fact> of_optimizer = optimizer_facts(optimizer);
  facts.insert(facts.end(), of_optimizer.begin(), of_optimizer.end());
  if (leads()) {
    begin();
  } else {
    ledger.set_population(population);
  }
  if (shared) share_progress();
}

void Engine::Parts::begin() {
  follow_bound_schedule();
  // Refuses a noise scale that no grid fits now, instead of at the first release.
  std::int64_t elements = 0;
  for (const ClipGroup& group : clipper.groups()) {
    for (const Parameter* parameter : group.parameters) elements += parameter->value.numel();
  }
  const bool on_grid = !options.noise_strategy && options.noise == GaussianNoise::discretized;
  if (on_grid && noise.noise_at(0) > 0 && elements > 0)
    noise_grid(noise.noise_at(0), clipper.sensitivity(), elements);
  noise.check_counts(initial_bounds.size());
  sampler->resume_from(ledger.next_draw());
  ledger.set_population(sampler->population());
  ledger.plan(noise.whole_plan());
}

bool Engine::Parts::can_step() const {
  if (options.steps > 0 && steps_made >= options.steps) return false;
  return shared ? may_step : within_target();
}

bool Engine::Parts::within_target() const {
  if (!options.target_epsilon) return true;
  return budget.allows_after(noise.planned(steps_made, options.steps)) ||
         budget.allows_after(noise.planned(steps_made, steps_made + 1));
}

// Computes a physical batch forward and backward into the clipper.
void Engine::Parts::run(const Loss& loss, PhysicalBatch batch, Clipper& to,
                        memory::PhaseProfiler& times) const {
  if (batch.rows.empty()) return to.add_zeros(batch.grouping.units);
  // In a batch of one row the sample axis could not be told from other axes of size 1.
  batch.pad(2);
  times.enter("forward");
  Tape tape({.private_data = true,
             .precision = planning.precision(),
             .seed = options.seed,
             .step = static_cast<std::uint64_t>(steps_made),
             .rows = std::move(batch.draws)});
  const Var losses = loss(tape, batch.rows);
  check(losses.shape() == Shape{static_cast<std::int64_t>(batch.rows.size())},
        "Engine: a loss of shape {} for {} rows; return one loss for each row; the engine averages",
        losses.shape(), batch.rows.size());
  times.enter("backward and clip");
  to.add(tape, losses, one_row_each(batch.grouping) ? nullptr : &batch.grouping);
}

void Engine::Parts::claim_run() {
  if (!claim) claim = ledger.claim();
}

NoisyGradient Engine::Parts::release(const Loss& loss) {
  claim_run();
  const SamplerState before = sampler->state();
  const std::int64_t releases = ledger.run_releases();
  try {
    phases.enter("sample");
    SampledBatch batch = sampler->draw();
    batches.over(batch, clipper,
                 [&](PhysicalBatch physical) { run(loss, std::move(physical), clipper, phases); });
    phases.enter("noise, ledger and update");
    const double on_counts = noise.unclipped_count_stddev(batch.expected_batch_size());
    mechanism->set_noise_multiplier(noise_multiplier());
    return mechanism->update(clipper.finish(std::move(batch)), ledger, optimizer,
                             budget.admission(), on_counts);
  } catch (...) {
    clipper.discard();
    phases.stop();
    // A batch that was not charged counts as not drawn.
    if (ledger.run_releases() == releases) sampler->load_state(before);
    throw;
  }
}

void Engine::Parts::follow_bound_schedule() {
  if (!options.bound_schedule) return;
  std::vector<double> bounds;
  for (const double initial : initial_bounds)
    bounds.push_back(options.bound_schedule->value(steps_made, initial));
  clipper.set_bounds(bounds);
}

// With weights that are not finite, further steps would spend privacy for no use.
void Engine::Parts::check_model() {
  const bool assigned = trained.check_same(model);
  constexpr std::int64_t steps_on_gpu = 16;
  if (assigned || memory::device_of(optimizer) == cpu || steps_made % steps_on_gpu == 0)
    trained.check_finite();
}

// Adapts the clip bounds and the loss scale to the released counts.
void Engine::Parts::adapt(const NoisyGradient& released) {
  if (options.adaptive_clipping)
    clipper.set_bounds(
        options.adaptive_clipping->next(clipper.bounds(), released.unclipped_fraction()));
  if (released.finite()) {
    loss_scale.follow(*released.finite());
    clipper.set_loss_scale(loss_scale.value());
  }
}

// Throws if no step is planned and within the target epsilon. For rank 0.
void Engine::Parts::check_step() const {
  const bool planned = options.steps == 0 || steps_made < options.steps;
  if (!planned || !within_target())
    fail(fmt::format("Engine: no step left: {} made of {}, epsilon {} spent", steps_made,
                     options.steps, epsilon_text(budget.epsilon())));
  check(!options.noise_schedule || noise_multiplier() > 0,
        "Engine: the schedule of noise is {} at step {}", noise_multiplier(), steps_made);
}

// Under a memory limit, before the first step. Collective.
void Engine::Parts::plan_memory(const Loss& loss) {
  if (batches.rows()) return;
  phases.stop();  // dry runs belong to no phase
  planning.choose([&](const auto& batch, auto& dry, auto& times) { run(loss, batch, dry, times); },
                  shared ? &shared->ranks() : nullptr);
}

StepReport Engine::Parts::step(const Loss& loss) {
  if (shared) return step_together(loss);
  check_model();
  check_step();
  follow_bound_schedule();
  plan_memory(loss);
  const memory::LimitScope limit(options.memory.limit, memory::device_of(optimizer));
  std::vector<double> bounds = clipper.bounds();
  const NoisyGradient released = release(loss);
  // Prefetches the next step's noise, except under a memory limit, whose planner does not count it.
  if (options.memory.limit == 0) mechanism->prefetch();
  phases.stop();
  ++steps_made;
  adapt(released);
  return {steps_made, &clipper.statistics(), std::move(bounds)};
}

void Engine::Parts::share_progress() {
  const RunProgress told = shared->tell([&] {
    return RunProgress{steps_made, noise.initial(), within_target()};
  });
  steps_made = told.steps_made;
  may_step = told.may_step;
  if (told.first_noise == noise.initial()) return;
  noise.set_initial(told.first_noise);
  mechanism = noise.make_mechanism();
}

// With pieces of the population as owners, their size follows from the plan: it comes before the
// first order.
void Engine::Parts::plan_together(const Loss& loss) {
  if (batches.rows()) return;
  on_rank_0(*options.ranks, "Engine::step", [&] {
    check_model();
    check_step();
  });
  abort_on_error(shared->ranks(), [&] {
    if (!leads()) check_model();
    plan_memory(loss);
  });
}

StepReport Engine::Parts::step_together(const Loss& loss) {
  const auto decide = [&] {
    check_model();
    check_step();
    claim_run();
    follow_bound_schedule();
    return StepOrder{steps_made, noise_multiplier(), loss_scale.value(), clipper.bounds()};
  };
  const SamplerState before = sampler->state();
  const std::int64_t releases = leads() ? ledger.run_releases() : 0;
  std::pair<StepOrder, SampledBatch> drawn = [&] {
    try {
      plan_together(loss);
      phases.enter("sample");
      return shared->draw("Engine::step", *sampler, batches.owners(), decide);
    } catch (const OnEveryRank&) {
      share_progress();
      throw;
    }
  }();
  try {
    abort_on_error(shared->ranks(),
                   [&] { compute_together(loss, std::move(drawn.second), drawn.first); });
  } catch (const OnEveryRank&) {
    deny_together(before, releases);
    throw;
  }
  return {steps_made, &clipper.statistics(), std::move(drawn.first.bounds)};
}

// The ledger has refused the step that every rank has computed.
void Engine::Parts::deny_together(const SamplerState& before, std::int64_t releases) {
  clipper.discard();
  phases.stop();
  if (leads() && ledger.run_releases() == releases) sampler->load_state(before);
  share_progress();
}

// Makes the step that rank 0 ordered. Bounds and the loss scale are rank 0's to adapt: the others
// are told them in the next order.
void Engine::Parts::compute_together(const Loss& loss, SampledBatch batch, const StepOrder& order) {
  if (!leads()) {
    check_model();
    claim_run();
    steps_made = order.steps_made;
    clipper.set_bounds(order.bounds);
    clipper.set_loss_scale(order.loss_scale);
  }
  const memory::LimitScope limit(options.memory.limit, memory::device_of(optimizer));
  mechanism->set_noise_multiplier(order.noise_multiplier);
  clipper.share(shared->shards());
  batches.over(
      batch, clipper,
      [&](PhysicalBatch physical) { run(loss, std::move(physical), clipper, phases); },
      rank_of(options));
  phases.enter("noise, ledger and update");
  const double on_counts = noise.unclipped_count_stddev(batch.expected_batch_size());
  const NoisyGradient released =
      mechanism->update(clipper.finish(std::move(batch), shared->shards()), ledger, optimizer,
                        budget.admission(), on_counts);
  phases.stop();
  ++steps_made;
  if (leads()) adapt(released);
  if (options.target_epsilon) share_progress();
}

}  // namespace sotto
