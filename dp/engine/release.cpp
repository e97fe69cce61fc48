#include "dp/engine/release.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "dp/engine/mean_query.h"
#include "dp/engine/validation.h"
#include "dp/noise/bounded_statistics.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/noise/noise_grid.h"
#include "dp/numerics/directed_rounding.h"
#include "dp/sampling/poisson_samplers.h"

namespace sotto {

namespace {

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

Release::Release(nn::Module& model, std::int64_t population, const Ledger& ledger,
                 const EngineOptions& options, const Agreement& agreement)
    : options_(options),
      agreement_(agreement),
      ledger_(ledger),
      sampler_(agreement.sampler_for(make_sampler(population, sampler_options(options)))),
      clipper_(clip_groups(model, options), clip_options(options, *sampler_),
               options.passes.value_or(ClipPasses::one)),
      initial_bounds_(clipper_.bounds()),
      noise_(options, *sampler_, ledger_),
      mechanism_(noise_.make_mechanism()),
      budget_(ledger_, accountant_factory(options.accountant, ledger_.header().relation),
              options.delta, options.target_epsilon) {}

void Release::plan() {
  follow_schedules(0);
  // Refuses a noise scale that no grid fits now, instead of at the first release.
  std::int64_t elements = 0;
  for (const Parameter* parameter : parameters()) elements += parameter->value.numel();
  const bool on_grid = !options_.noise_strategy && options_.noise == GaussianNoise::discretized;
  if (on_grid && noise_.noise_at(0) > 0 && elements > 0)
    noise_grid(noise_.noise_at(0), clipper_.sensitivity(), elements);
  noise_.check_counts(initial_bounds_.size());
  sampler_->resume_from(ledger_.next_draw());
  set_population();
  ledger_.plan(noise_.whole_plan());
}

void Release::claim() {
  if (!claim_) claim_ = ledger_.claim();
}

bool Release::within_target(std::int64_t steps_made) const {
  if (!options_.target_epsilon) return true;
  return budget_.allows_after(noise_.planned(steps_made, options_.steps)) ||
         budget_.allows_after(noise_.planned(steps_made, steps_made + 1));
}

void Release::check_step(std::int64_t steps_made) const {
  const bool planned = options_.steps == 0 || steps_made < options_.steps;
  if (!planned || !within_target(steps_made))
    fail(fmt::format("Engine: no step left: {} made of {}, epsilon {} spent", steps_made,
                     options_.steps, epsilon_text(budget_.epsilon())));
  check(!options_.noise_schedule || noise_.noise_at(steps_made) > 0,
        "Engine: the schedule of noise is {} at step {}", noise_.noise_at(steps_made), steps_made);
}

void Release::follow_schedules(std::int64_t steps_made) {
  if (!options_.bound_schedule) return;
  std::vector<double> bounds;
  for (const double initial : initial_bounds_)
    bounds.push_back(options_.bound_schedule->value(steps_made, initial));
  clipper_.set_bounds(bounds);
}

Release::Place Release::place() const { return {sampler_->state(), ledger_.run_releases()}; }

void Release::return_to(const Place& place) {
  if (ledger_.run_releases() == place.releases) sampler_->load_state(place.sampler);
}

NoisyGradient Release::update(double noise_multiplier, SampledBatch batch,
                              nn::Optimizer& optimizer) {
  mechanism_->set_noise_multiplier(noise_multiplier);
  const double on_counts = noise_.unclipped_count_stddev(batch.expected_batch_size());
  return mechanism_->update(clipper_.finish(std::move(batch)), ledger_, optimizer,
                            budget_.admission(), on_counts);
}

std::vector<double> Release::means(const MeanQuery& query, const UnitBatches& batches) {
  Ranks& ranks = agreement_.ranks();
  check_same_query(ranks, query);
  std::optional<GaussianMechanism> gaussian;
  std::optional<StatisticSum> sum;
  std::unique_ptr<Sampler> drawing;
  on_all_ranks(ranks, "release_means: query", [&] {
    check(query.noise_multiplier > 0, "release_means: noise multiplier {}", query.noise_multiplier);
    gaussian.emplace(query.noise_multiplier, options_.noise);
    sum.emplace(query.ranges);
    drawing = agreement_.sampler_for(
        std::make_unique<PoissonSampler>(sampler_->population(), query.sampling_rate));
    claim();
  });
  const auto begin = [&] {
    drawing->resume_from(ledger_.next_draw());
    if (!budget_.allows_after({{gaussian->event(drawing->event()), 1}}))
      fail(fmt::format("release_means: epsilon would pass {} from {}",
                       options_.target_epsilon.value_or(0), epsilon_text(budget_.epsilon())));
    return StepOrder();
  };
  SampledBatch draw = agreement_.draw({.place = "Engine::release_means", .decide = begin}, *drawing,
                                      batches.owners());
  add_values(*sum, query, batches, batches.owners().of(rank_of(options_), draw.units()).units);
  std::vector<double> means =
      gaussian->release(sum->finish(std::move(draw), options_.ranks), ledger_, budget_.admission());
  on_rank_0(ranks, "Engine::release_means: next draw", [&] {
    // The steps' sampler skips this draw's number and keeps its position in its epoch.
    SamplerState state = sampler_->state();
    state.number = ledger_.next_draw();
    sampler_->load_state(state);
  });
  return means;
}

std::vector<const Parameter*> Release::parameters() const {
  std::vector<const Parameter*> all;
  for (const ClipGroup& group : clipper_.groups())
    all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

void Release::check_state(const EngineState& state) const {
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
        "engine state: the plan of correlated noise stood at draw {}, and the ledger has "
        "seen draws up to {}: a new plan must begin",
        state.sampler.number, ledger_.next_draw());
}

void Release::set_initial_noise(double noise_multiplier) {
  if (noise_multiplier == noise_.initial()) return;
  noise_.set_initial(noise_multiplier);
  mechanism_ = noise_.make_mechanism();
}

void Release::load(const EngineState& state) {
  const SamplerState before = sampler_->state();
  const double noise_before = noise_.initial();
  std::unique_ptr<Mechanism> mechanism_before;
  sampler_->load_state(state.sampler);
  try {
    noise_.set_initial(state.noise_multiplier);
    if (state.noise_multiplier != noise_before)
      mechanism_before = std::exchange(mechanism_, noise_.make_mechanism());
    mechanism_->load_state(state.mechanism);
    clipper_.set_bounds(state.bounds);
  } catch (...) {
    noise_.set_initial(noise_before);
    if (mechanism_before) mechanism_ = std::move(mechanism_before);
    sampler_->load_state(before);
    throw;
  }
  if (state.sampler.number != ledger_.next_draw()) sampler_->resume_from(ledger_.next_draw());
}

}  // namespace sotto
