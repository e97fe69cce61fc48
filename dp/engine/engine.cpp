#include "dp/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/join.h"
#include "dp/engine/engine_state.h"
#include "dp/engine/validation.h"
#include "dp/numerics/directed_rounding.h"

namespace sotto {

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

Engine::Engine(nn::Module& model, nn::Optimizer& optimizer, std::int64_t population,
               const Ledger& ledger, const EngineOptions& options)
    : options_(validated(model, optimizer, population, ledger, options)),
      model_(model),
      optimizer_(optimizer),
      ledger_(ledger),
      sampler_(make_sampler(population, sampler_options(options))),
      clipper_(clip_groups(model, options), clip_options(options, *sampler_),
               options.passes.value_or(ClipPasses::one)),
      loss_scale_(options.loss_scaling, options.memory.precision.value_or(Dtype::f32)),
      initial_bounds_(clipper_.bounds()),
      noise_(options_, *sampler_, ledger),
      mechanism_(noise_.make_mechanism()),
      budget_(ledger, accountant_factory(options.accountant, ledger.header().relation),
              options.delta, options.target_epsilon),
      batches_(options_, *sampler_, memory::device_of(optimizer)),
      planning_(options_, model, optimizer, clipper_, batches_),
      phases_({memory::device_of(optimizer)}) {
  follow_bound_schedule();
  // Refuses a noise scale that no grid fits now, instead of at the first release.
  std::int64_t elements = 0;
  for (const ClipGroup& group : clipper_.groups()) {
    for (const Parameter* parameter : group.parameters) elements += parameter->value.numel();
  }
  const bool on_grid = !options.noise_strategy && options.noise == GaussianNoise::discretized;
  if (on_grid && noise_.noise_at(0) > 0 && elements > 0)
    noise_grid(noise_.noise_at(0), clipper_.sensitivity(), elements);
  noise_.check_counts(initial_bounds_.size());
  clipper_.set_loss_scale(loss_scale_.value());
  sampler_->resume_from(ledger_.next_draw());
  ledger_.set_population(population);
  ledger_.plan(noise_.whole_plan());
}

double Engine::epsilon() const {
  const OneUser::Call call(user_, "Engine::epsilon", OneUser::Access::reads);
  return budget_.epsilon();
}

PrivacyStatement Engine::report() const {
  const OneUser::Call call(user_, "Engine::report", OneUser::Access::reads);
  return privacy_statement({.options = options_,
                            .ledger = ledger_,
                            .budget = budget_,
                            .sampler = *sampler_,
                            .clipper = clipper_,
                            .mechanism = *mechanism_});
}

bool Engine::can_step() const {
  const OneUser::Call call(user_, "Engine::can_step", OneUser::Access::reads);
  if (options_.steps > 0 && steps_made_ >= options_.steps) return false;
  if (!options_.target_epsilon) return true;
  return budget_.allows_after(noise_.planned(steps_made_, options_.steps)) ||
         budget_.allows_after(noise_.planned(steps_made_, steps_made_ + 1));
}

// Computes a physical batch forward and backward into the clipper.
void Engine::run(const Loss& loss, PhysicalBatch batch, Clipper& clipper,
                 PhaseProfiler& phases) const {
  if (batch.rows.empty()) return clipper.add_zeros(batch.grouping.units);
  // In a batch of one row the sample axis could not be told from other axes of size 1.
  batch.pad(2);
  phases.enter("forward");
  Tape tape({.private_data = true,
             .precision = planning_.precision(),
             .seed = options_.seed,
             .step = static_cast<std::uint64_t>(steps_made_),
             .rows = std::move(batch.draws)});
  const Var losses = loss(tape, batch.rows);
  check(losses.shape() == Shape{static_cast<std::int64_t>(batch.rows.size())},
        "Engine: a loss of shape {} for {} rows; return one loss for each row; the engine averages",
        losses.shape(), batch.rows.size());
  phases.enter("backward and clip");
  clipper.add(tape, losses, one_row_each(batch.grouping) ? nullptr : &batch.grouping);
}

// Claims the ledger's run for this engine, before its first release.
void Engine::claim() {
  if (!claim_) claim_ = ledger_.claim();
}

NoisyGradient Engine::release(const Loss& loss) {
  claim();
  const SamplerState before = sampler_->state();
  const std::int64_t releases = ledger_.run_releases();
  try {
    phases_.enter("sample");
    SampledBatch batch = sampler_->draw();
    batches_.over(batch, clipper_, [&](PhysicalBatch physical) {
      run(loss, std::move(physical), clipper_, phases_);
    });
    phases_.enter("noise, ledger and update");
    const double on_counts = noise_.unclipped_count_stddev(batch.expected_batch_size());
    mechanism_->set_noise_multiplier(noise_multiplier());
    return mechanism_->update(clipper_.finish(std::move(batch)), ledger_, optimizer_,
                              budget_.admission(), on_counts);
  } catch (...) {
    clipper_.discard();
    phases_.stop();
    // A batch that was not charged counts as not drawn.
    if (ledger_.run_releases() == releases) sampler_->load_state(before);
    throw;
  }
}

void Engine::follow_bound_schedule() {
  if (!options_.bound_schedule) return;
  std::vector<double> bounds;
  for (const double initial : initial_bounds_)
    bounds.push_back(options_.bound_schedule->value(steps_made_, initial));
  clipper_.set_bounds(bounds);
}

// With weights that are not finite, further steps would spend privacy for no use.
void Engine::check_model() {
  const bool assigned = trained_.check_same(model_);
  constexpr std::int64_t steps_on_gpu = 16;
  if (assigned || memory::device_of(optimizer_) == cpu || steps_made_ % steps_on_gpu == 0)
    trained_.check_finite();
}

// Adapts the clip bounds and the loss scale to the released counts.
void Engine::adapt(const NoisyGradient& released) {
  if (options_.adaptive_clipping)
    clipper_.set_bounds(
        options_.adaptive_clipping->next(clipper_.bounds(), released.unclipped_fraction()));
  if (released.finite()) {
    loss_scale_.follow(*released.finite());
    clipper_.set_loss_scale(loss_scale_.value());
  }
}

StepReport Engine::step(const Loss& loss) {
  const OneUser::Call call(user_, "Engine::step", OneUser::Access::changes);
  check_model();
  if (!can_step())
    fail(fmt::format("Engine: no step left: {} made of {}, epsilon {} spent", steps_made_,
                     options_.steps, epsilon_text(epsilon())));
  follow_bound_schedule();
  check(!options_.noise_schedule || noise_multiplier() > 0,
        "Engine: the schedule of noise is {} at step {}", noise_multiplier(), steps_made_);
  if (!batches_.rows())
    planning_.choose([&](PhysicalBatch batch, Clipper& clipper, PhaseProfiler& phases) {
      run(loss, std::move(batch), clipper, phases);
    });
  const memory::LimitScope limit(options_.memory.limit, memory::device_of(optimizer_));
  const NoisyGradient released = release(loss);
  // Prefetches the next step's noise, except under a memory limit, whose planner does not count it.
  if (options_.memory.limit == 0) mechanism_->prefetch();
  phases_.stop();
  ++steps_made_;
  adapt(released);
  return {.step = steps_made_, .statistics = &clipper_.statistics()};
}

std::vector<double> Engine::release_means(const MeanQuery& query) {
  const OneUser::Call call(user_, "Engine::release_means", OneUser::Access::changes);
  check(!options_.noise_strategy,
        "release_means: a plan of correlated noise allows no other releases in between");
  claim();
  check(query.noise_multiplier > 0, "release_means: noise multiplier {}", query.noise_multiplier);
  PoissonSampler sampler(sampler_->population(), query.sampling_rate);
  sampler.resume_from(ledger_.next_draw());
  GaussianMechanism mechanism(query.noise_multiplier, SecretRandom(), options_.noise);
  const Event event = mechanism.event(sampler.event());
  if (!budget_.allows_after({{event, 1}}))
    fail(fmt::format("release_means: epsilon would pass {} from {}",
                     options_.target_epsilon.value_or(0), epsilon_text(epsilon())));
  StatisticSum sum(query.ranges);
  SampledBatch draw = sampler.draw();
  for (const auto units : draw.parts(physical_batch().value_or(memory::usual_physical_batch))) {
    if (units.empty()) continue;
    const auto values = query.values(units);
    check(values.size() == units.size(), "release_means: values of {} units for {}", values.size(),
          units.size());
    for (const std::vector<double>& of_unit : values) sum.add(of_unit);
  }
  std::vector<double> means =
      mechanism.release(sum.finish(std::move(draw)), ledger_, budget_.admission());
  // The steps' sampler skips this draw's number and keeps its position in its epoch.
  SamplerState state = sampler_->state();
  state.number = ledger_.next_draw();
  sampler_->load_state(state);
  return means;
}

TensorFile Engine::state() const {
  const OneUser::Call call(user_, "Engine::state", OneUser::Access::reads);
  return to_file({.ledger = ledger_.id(),
                  .run = ledger_.run_id(),
                  .steps_made = steps_made_,
                  .noise_multiplier = noise_.initial(),
                  .bounds = clipper_.bounds(),
                  .loss_scale = EngineState::Scale{loss_scale_.value(), loss_scale_.good_steps()},
                  .sampler = sampler_->state(),
                  .mechanism = mechanism_->state()});
}

void Engine::check_state(const EngineState& state) const {
  check(state.ledger == ledger_.id() && state.run == ledger_.run_id(),
        "engine state: of another run than this ledger's");
  check(state.steps_made >= 0 && state.steps_made <= ledger_.run_releases(),
        "engine state: step {} with {} releases of this run in the ledger", state.steps_made,
        ledger_.run_releases());
  // With a target epsilon it was larger if other runs had already spent some of it at the start.
  check(state.noise_multiplier == noise_.initial() ||
            (options_.target_epsilon && state.noise_multiplier > noise_.initial()),
        "engine state: the noise multiplier would be {:.6g} and was {:.6g}", noise_.initial(),
        state.noise_multiplier);
  check(state.bounds.size() == clipper_.groups().size(),
        "engine state: {} clip bounds for {} groups", state.bounds.size(),
        clipper_.groups().size());
  check(!options_.noise_strategy || state.sampler.number == ledger_.next_draw(),
        "engine state: the plan of correlated noise stood at draw {}, and the ledger has seen "
        "draws up to {}: a new plan must begin",
        state.sampler.number, ledger_.next_draw());
}

void Engine::load_state(const TensorFile& file) {
  const OneUser::Call call(user_, "Engine::load_state", OneUser::Access::changes);
  const EngineState state = engine_state(file);
  check_state(state);
  LossScale scale = loss_scale_;
  if (options_.loss_scaling.adjust != LossScaling::Adjust::never && state.loss_scale)
    scale.resume(state.loss_scale->value, state.loss_scale->good_steps);
  const SamplerState before = sampler_->state();
  sampler_->load_state(state.sampler);
  const double noise_before = noise_.initial();
  noise_.set_initial(state.noise_multiplier);
  std::unique_ptr<Mechanism> mechanism_before;
  try {
    if (state.noise_multiplier != noise_before)
      mechanism_before = std::exchange(mechanism_, noise_.make_mechanism());
    mechanism_->load_state(state.mechanism);
    clipper_.set_bounds(state.bounds);
    clipper_.set_loss_scale(scale.value());
  } catch (...) {
    noise_.set_initial(noise_before);
    if (mechanism_before) mechanism_ = std::move(mechanism_before);
    sampler_->load_state(before);
    throw;
  }
  if (state.sampler.number != ledger_.next_draw()) sampler_->resume_from(ledger_.next_draw());
  steps_made_ = state.steps_made;
  loss_scale_ = scale;
}

}  // namespace sotto
