#include "dp/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/join.h"
#include "core/threads/one_user.h"
#include "dp/accounting/budget.h"
#include "dp/engine/dataset_units.h"
#include "dp/engine/engine_state.h"
#include "dp/engine/memory_planning.h"
#include "dp/engine/noise_schedule.h"
#include "dp/engine/trained_parameters.h"
#include "dp/engine/unit_batches.h"
#include "dp/engine/validation.h"
#include "dp/noise/bounded_statistics.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/noise/noise_grid.h"
#include "dp/numerics/directed_rounding.h"
#include "dp/sampling/poisson_samplers.h"

namespace sotto::inline dp {

namespace {

EngineOptions validated(nn::Module& model, const nn::Optimizer& optimizer, std::int64_t population,
                        const Ledger& ledger, const EngineOptions& options) {
  const std::vector<std::string> problems =
      engine_problems(model, optimizer, population, options, ledger.header());
  check(problems.empty(), "Engine: {}", join(problems, "\nEngine: "));
  return options;
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

ClipOptions clip_options(const EngineOptions& options, const Sampler& sampler) {
  ClipOptions clipping = options.clipping;
  clipping.count_finite = counts_finite(options);
  clipping.sum_size = {.batch = max_batch_size(sampler),
                       .block = options.rows_of_unit ? 1 : SumBlocks::Limits{}.units};
  return clipping;
}

}  // namespace

// The parts of an engine, and its steps without the lock.
struct Engine::Parts {
  Parts(nn::Module& model, nn::Optimizer& optimizer, std::int64_t population, const Ledger& ledger,
        const EngineOptions& options);

  double noise_multiplier() const { return noise.noise_at(steps_made); }
  bool can_step() const;
  void check_model();
  void run(const Loss& loss, PhysicalBatch batch, Clipper& to, memory::PhaseProfiler& times) const;
  void claim_run();
  void follow_bound_schedule();
  NoisyGradient release(const Loss& loss);
  void adapt(const NoisyGradient& released);
  StepReport step(const Loss& loss);
  std::vector<double> release_means(const MeanQuery& query);
  void check_state(const EngineState& state) const;
  void load(const EngineState& state);

  const EngineOptions options;  // validated
  nn::Module& model;
  nn::Optimizer& optimizer;
  Ledger ledger;
  std::shared_ptr<const void> claim;
  std::unique_ptr<Sampler> sampler;
  Clipper clipper;
  memory::LossScale loss_scale;
  std::vector<double> initial_bounds;
  NoiseSchedule noise;
  std::unique_ptr<Mechanism> mechanism;
  Budget budget;
  UnitBatches batches;
  MemoryPlanning planning;
  std::int64_t steps_made = 0;
  memory::PhaseProfiler phases;
  TrainedParameters trained{model};
  mutable OneUser user;
};

Engine::Parts::Parts(nn::Module& trained_model, nn::Optimizer& its_optimizer,
                     std::int64_t population, const Ledger& run, const EngineOptions& given)
    : options(validated(trained_model, its_optimizer, population, run, given)),
      model(trained_model),
      optimizer(its_optimizer),
      ledger(run),
      sampler(make_sampler(population, sampler_options(options))),
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
      phases({memory::device_of(optimizer)}) {
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
  clipper.set_loss_scale(loss_scale.value());
  sampler->resume_from(ledger.next_draw());
  ledger.set_population(population);
  ledger.plan(noise.whole_plan());
}

bool Engine::Parts::can_step() const {
  if (options.steps > 0 && steps_made >= options.steps) return false;
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

// Claims the ledger's run for this engine, before its first release.
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

StepReport Engine::Parts::step(const Loss& loss) {
  check_model();
  if (!can_step())
    fail(fmt::format("Engine: no step left: {} made of {}, epsilon {} spent", steps_made,
                     options.steps, epsilon_text(budget.epsilon())));
  follow_bound_schedule();
  check(!options.noise_schedule || noise_multiplier() > 0,
        "Engine: the schedule of noise is {} at step {}", noise_multiplier(), steps_made);
  if (!batches.rows())
    planning.choose([&](PhysicalBatch batch, Clipper& dry, memory::PhaseProfiler& times) {
      run(loss, std::move(batch), dry, times);
    });
  const memory::LimitScope limit(options.memory.limit, memory::device_of(optimizer));
  const NoisyGradient released = release(loss);
  // Prefetches the next step's noise, except under a memory limit, whose planner does not count it.
  if (options.memory.limit == 0) mechanism->prefetch();
  phases.stop();
  ++steps_made;
  adapt(released);
  return {.step = steps_made, .statistics = &clipper.statistics()};
}

std::vector<double> Engine::Parts::release_means(const MeanQuery& query) {
  check(!options.noise_strategy,
        "release_means: a plan of correlated noise allows no other releases in between");
  claim_run();
  check(query.noise_multiplier > 0, "release_means: noise multiplier {}", query.noise_multiplier);
  PoissonSampler query_sampler(sampler->population(), query.sampling_rate);
  query_sampler.resume_from(ledger.next_draw());
  GaussianMechanism gaussian(query.noise_multiplier, SecretRandom(), options.noise);
  const Event event = gaussian.event(query_sampler.event());
  if (!budget.allows_after({{event, 1}}))
    fail(fmt::format("release_means: epsilon would pass {} from {}",
                     options.target_epsilon.value_or(0), epsilon_text(budget.epsilon())));
  StatisticSum sum(query.ranges);
  SampledBatch draw = query_sampler.draw();
  for (const auto units : draw.parts(batches.rows().value_or(memory::usual_physical_batch))) {
    if (units.empty()) continue;
    const auto values = query.values(units);
    check(values.size() == units.size(), "release_means: values of {} units for {}", values.size(),
          units.size());
    for (const std::vector<double>& of_unit : values) sum.add(of_unit);
  }
  std::vector<double> means =
      gaussian.release(sum.finish(std::move(draw)), ledger, budget.admission());
  // The steps' sampler skips this draw's number and keeps its position in its epoch.
  SamplerState state = sampler->state();
  state.number = ledger.next_draw();
  sampler->load_state(state);
  return means;
}

void Engine::Parts::check_state(const EngineState& state) const {
  check(state.ledger == ledger.id() && state.run == ledger.run_id(),
        "engine state: of another run than this ledger's");
  check(state.steps_made >= 0 && state.steps_made <= ledger.run_releases(),
        "engine state: step {} with {} releases of this run in the ledger", state.steps_made,
        ledger.run_releases());
  // With a target epsilon it was larger if other runs had already spent some of it at the start.
  check(state.noise_multiplier == noise.initial() ||
            (options.target_epsilon && state.noise_multiplier > noise.initial()),
        "engine state: the noise multiplier would be {:.6g} and was {:.6g}", noise.initial(),
        state.noise_multiplier);
  check(state.bounds.size() == clipper.groups().size(),
        "engine state: {} clip bounds for {} groups", state.bounds.size(), clipper.groups().size());
  check(!options.noise_strategy || state.sampler.number == ledger.next_draw(),
        "engine state: the plan of correlated noise stood at draw {}, and the ledger has seen "
        "draws up to {}: a new plan must begin",
        state.sampler.number, ledger.next_draw());
}

void Engine::Parts::load(const EngineState& state) {
  check_state(state);
  memory::LossScale scale = loss_scale;
  if (options.loss_scaling.adjust != memory::LossScaling::Adjust::never && state.loss_scale)
    scale.resume(state.loss_scale->value, state.loss_scale->good_steps);
  const SamplerState before = sampler->state();
  sampler->load_state(state.sampler);
  const double noise_before = noise.initial();
  noise.set_initial(state.noise_multiplier);
  std::unique_ptr<Mechanism> mechanism_before;
  try {
    if (state.noise_multiplier != noise_before)
      mechanism_before = std::exchange(mechanism, noise.make_mechanism());
    mechanism->load_state(state.mechanism);
    clipper.set_bounds(state.bounds);
    clipper.set_loss_scale(scale.value());
  } catch (...) {
    noise.set_initial(noise_before);
    if (mechanism_before) mechanism = std::move(mechanism_before);
    sampler->load_state(before);
    throw;
  }
  if (state.sampler.number != ledger.next_draw()) sampler->resume_from(ledger.next_draw());
  steps_made = state.steps_made;
  loss_scale = scale;
}

Engine::Engine(nn::Module& model, nn::Optimizer& optimizer, std::int64_t population,
               const Ledger& ledger, const EngineOptions& options)
    : parts_(std::make_unique<Parts>(model, optimizer, population, ledger, options)) {}

Engine::Engine(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data,
               const Ledger& ledger, const EngineOptions& options)
    : Engine(model, optimizer, data.unit_count(), ledger, with_units_of(data, options)) {}

Engine::~Engine() = default;

bool Engine::can_step() const {
  const OneUser::Call call(parts_->user, "Engine::can_step", OneUser::Access::reads);
  return parts_->can_step();
}

StepReport Engine::step(const Loss& loss) {
  const OneUser::Call call(parts_->user, "Engine::step", OneUser::Access::changes);
  return parts_->step(loss);
}

std::vector<double> Engine::release_means(const MeanQuery& query) {
  const OneUser::Call call(parts_->user, "Engine::release_means", OneUser::Access::changes);
  return parts_->release_means(query);
}

double Engine::epsilon() const {
  const OneUser::Call call(parts_->user, "Engine::epsilon", OneUser::Access::reads);
  return parts_->budget.epsilon();
}

PrivacyStatement Engine::report() const {
  const OneUser::Call call(parts_->user, "Engine::report", OneUser::Access::reads);
  return privacy_statement({.options = parts_->options,
                            .ledger = parts_->ledger,
                            .budget = parts_->budget,
                            .sampler = *parts_->sampler,
                            .clipper = parts_->clipper,
                            .mechanism = *parts_->mechanism});
}

TensorFile Engine::state() const {
  const OneUser::Call call(parts_->user, "Engine::state", OneUser::Access::reads);
  const memory::LossScale& scale = parts_->loss_scale;
  return to_file({.ledger = parts_->ledger.id(),
                  .run = parts_->ledger.run_id(),
                  .steps_made = parts_->steps_made,
                  .noise_multiplier = parts_->noise.initial(),
                  .bounds = parts_->clipper.bounds(),
                  .loss_scale = EngineState::Scale{scale.value(), scale.good_steps()},
                  .sampler = parts_->sampler->state(),
                  .mechanism = parts_->mechanism->state()});
}

void Engine::load_state(const TensorFile& file) {
  const OneUser::Call call(parts_->user, "Engine::load_state", OneUser::Access::changes);
  parts_->load(engine_state(file));
}

double Engine::delta() const { return parts_->options.delta; }
Ledger Engine::ledger() const { return parts_->ledger; }
double Engine::noise_multiplier() const { return parts_->noise_multiplier(); }
const Sampler& Engine::sampler() const { return *parts_->sampler; }
const Mechanism& Engine::mechanism() const { return *parts_->mechanism; }
const Clipper& Engine::clipper() const { return parts_->clipper; }
const memory::LossScale& Engine::loss_scale() const { return parts_->loss_scale; }
std::int64_t Engine::steps_made() const { return parts_->steps_made; }
const memory::PhaseProfiler& Engine::phases() const { return parts_->phases; }
std::optional<std::int64_t> Engine::physical_batch() const { return parts_->batches.rows(); }
const memory::Plan* Engine::memory_plan() const {
  const std::optional<memory::Plan>& plan = parts_->planning.plan();
  return plan ? &*plan : nullptr;
}

}  // namespace sotto::inline dp
