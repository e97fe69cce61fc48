#include "dp/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include "core/join.h"
#include "dp/engine/disjoint_rows.h"
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

// Whether row k is unit k.
bool one_row_each(const Grouping& grouping) {
  for (std::size_t row = 0; row < grouping.unit_of_row.size(); ++row) {
    if (grouping.unit_of_row[row] != static_cast<std::int64_t>(row)) return false;
  }
  return grouping.units == static_cast<std::int64_t>(grouping.unit_of_row.size());
}

// What numbers the public randomness of a unit's rows. A row that comes again in its unit is
// another one for dropout. Other units change nothing.
void number_draws(std::span<std::int64_t> rows) {
  if (rows.size() <= 1) return;
  constexpr std::int64_t again = std::int64_t{1} << 40;
  std::unordered_map<std::int64_t, std::int64_t> times;
  for (std::int64_t& row : rows) row += again * times[row]++;
}

bool counts_finite(const EngineOptions& options) {
  return options.loss_scaling.adjust == LossScaling::Adjust::on_release;
}

// Returns how many units a batch has at most: a planned one at most all, another one more than that
// with a probability below e^-1000.
std::int64_t max_batch_size(const Sampler& sampler) {
  if (sampler.sampling() == Sampling::planned) return sampler.population();
  constexpr double min = 4096;
  const double large = std::ceil(4 * sampler.expected_batch_size() + min);
  return std::min(sampler.population(), static_cast<std::int64_t>(large));
}

ClipOptions clip_options(const EngineOptions& options, const Sampler& sampler) {
  ClipOptions clipping = options.clipping;
  clipping.count_finite = counts_finite(options);
  clipping.sum_size = {.batch = max_batch_size(sampler),
                       .block = options.rows_of_unit ? 1 : SumBlocks::Limits{}.units};
  return clipping;
}

std::vector<double> bounds_of(const std::vector<ClipGroup>& groups) {
  std::vector<double> bounds;
  bounds.reserve(groups.size());
  for (const ClipGroup& group : groups) bounds.push_back(group.bound);
  return bounds;
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
      first_bounds_(bounds_of(clipper_.groups())),
      first_noise_multiplier_(noise_for(options, *sampler_, ledger)),
      mechanism_(make_mechanism()),
      budget_(ledger, make_accountant(options.accountant, ledger.header().relation), options.delta,
              options.target_epsilon),
      precision_(options.memory.precision.value_or(Dtype::f32)),
      phases_({memory::device_of(optimizer)}) {
  const memory::Policy& memory = options_.memory;
  set_passes(clipper_.passes(), clipper_.options().per_sample_grad_budget);
  if (memory.limit == 0) set_physical_batches(memory.rows());
  follow_bound_schedule();
  // Scales that the grid does not have are refused now, and not at the first release.
  std::int64_t elements = 0;
  for (const ClipGroup& group : clipper_.groups()) {
    for (const Parameter* parameter : group.parameters) elements += parameter->value.numel();
  }
  if (gaussian() && options.noise == GaussianNoise::discretized && noise_at(0) > 0 && elements > 0)
    noise_grid(noise_at(0), clipper_.sensitivity(), elements);
  check_counts();
  clipper_.set_loss_scale(loss_scale_.value());
  sampler_->resume_from(ledger_.next_draw());
  ledger_.set_population(population);
  write_plan();
}

double Engine::unclipped_count_stddev(double expected_batch_size) const {
  if (!options_.adaptive_clipping && !counts_finite(options_)) return 0;
  return options_.adaptive_clipping.value_or(AdaptiveClipping{})
      .unclipped_count_stddev_for(expected_batch_size);
}

// Counts released with the gradient must leave it some of the noise multiplier, at every step.
void Engine::check_counts() const {
  const double stddev = unclipped_count_stddev(sampler_->expected_batch_size());
  if (stddev == 0) return;
  const double number =
      static_cast<double>(first_bounds_.size()) + (counts_finite(options_) ? 1 : 0);
  const double counts = 2 * stddev / std::sqrt(number);
  for (std::int64_t step = 0; step < std::max<std::int64_t>(1, options_.steps); ++step) {
    check(noise_at(step) == 0 || noise_at(step) < counts,
          "Engine: the counts of adaptive clipping and loss scaling alone, with a noise multiplier "
          "of {:.6g}, are less "
          "private than the noise multiplier {:.6g} at step {} (raise unclipped_count_stddev)",
          counts, noise_at(step), step);
    if (!options_.noise_schedule) return;
  }
}

std::unique_ptr<Mechanism> Engine::make_mechanism() const {
  if (!options_.noise_strategy)
    return std::make_unique<GaussianMechanism>(noise_at(0), SecretRandom(), options_.noise);
  return std::make_unique<CorrelatedMechanism>(
      NoisePlan{.strategy = *options_.noise_strategy,
                .noise_multiplier = first_noise_multiplier_,
                .sampling = sampler_->sampling(),
                .min_separation = sampler_->min_separation()});
}

bool Engine::can_step() const {
  const OneUser::Call call(user_, "Engine::can_step", OneUser::Access::reads);
  if (options_.steps > 0 && steps_made_ >= options_.steps) return false;
  if (!options_.target_epsilon) return true;
  return budget_.allows_after(planned(steps_made_, options_.steps)) ||
         budget_.allows_after(planned(steps_made_, steps_made_ + 1));
}

std::vector<std::int64_t> Engine::rows_of_unit(std::int64_t unit) const {
  if (!options_.rows_of_unit) return {unit};
  return options_.rows_of_unit(unit);
}

void Engine::RowsOfUnits::add(std::span<const std::int64_t> rows_of_next) {
  rows.insert(rows.end(), rows_of_next.begin(), rows_of_next.end());
  starts.push_back(std::ssize(rows));
}

Engine::RowsOfUnits Engine::rows_of(const SampledBatch& draw) const {
  RowsOfUnits units;
  if (!options_.rows_of_unit) {
    units.rows.assign(draw.units().begin(), draw.units().end());
    units.starts.resize(draw.units().size() + 1);
    std::iota(units.starts.begin(), units.starts.end(), 0);
    return units;
  }
  for (const std::int64_t unit : draw.units()) units.add(rows_of_unit(unit));
  check_rows_apart(draw.units(), units.rows, units.starts);
  return units;
}

Engine::Part Engine::physical_batch_of(const RowsOfUnits& units, std::int64_t first,
                                       std::int64_t end) const {
  const auto start = [&](std::int64_t unit) {
    return units.starts[static_cast<std::size_t>(unit)];
  };
  Part part{{units.rows.begin() + start(first), units.rows.begin() + start(end)}, {}, {}};
  part.draws = part.rows;
  part.grouping = {.unit_of_row = {}, .units = end - first, .mean = options_.mean_of_rows};
  if (!options_.rows_of_unit) {  // row k is unit k
    part.grouping.unit_of_row.resize(part.rows.size());
    std::iota(part.grouping.unit_of_row.begin(), part.grouping.unit_of_row.end(), 0);
    return part;
  }
  part.grouping.unit_of_row.reserve(part.rows.size());
  for (std::int64_t unit = first; unit < end; ++unit) {
    const auto rows = static_cast<std::size_t>(start(unit + 1) - start(unit));
    number_draws(std::span(part.draws).subspan(part.grouping.unit_of_row.size(), rows));
    part.grouping.unit_of_row.insert(part.grouping.unit_of_row.end(), rows, unit - first);
  }
  return part;
}

void Engine::Part::pad(std::int64_t count) {
  const auto more = static_cast<std::size_t>(std::max<std::int64_t>(0, count - std::ssize(rows)));
  rows.insert(rows.end(), more, std::int64_t{rows[0]});
  draws.insert(draws.end(), more, std::int64_t{draws[0]});
  grouping.unit_of_row.insert(grouping.unit_of_row.end(), more, -1);
}

void Engine::add_physical_batch(const Loss& loss, Part part, const Target& target) const {
  if (part.rows.empty()) return target.clipper.add_zeros(part.grouping.units);
  // A batch of one cannot tell its sample axis from other axes of size 1.
  part.pad(std::max<std::int64_t>(2, target.rows));
  target.phases.enter("forward");
  Tape tape({.private_data = true,
             .precision = precision_,
             .seed = options_.seed,
             .step = static_cast<std::uint64_t>(steps_made_),
             .rows = std::move(part.draws)});
  const Var losses = loss(tape, part.rows);
  check(losses.shape() == Shape{static_cast<std::int64_t>(part.rows.size())},
        "Engine: a loss of shape {} for {} rows; return one loss for each row; the engine averages",
        losses.shape(), part.rows.size());
  target.phases.enter("backward and clip");
  target.clipper.add(tape, losses, one_row_each(part.grouping) ? nullptr : &part.grouping);
}

// The rows of all parts, as they are filled up.
void Engine::prefetch(const RowsOfUnits& units, std::span<const std::int64_t> block_ends,
                      std::span<const std::int64_t> rows_of_blocks) const {
  std::vector<std::int64_t> rows;
  std::int64_t first = 0;
  for (const std::int64_t block : physical_batches_->ends(rows_of_blocks)) {
    const std::int64_t end = block_ends[static_cast<std::size_t>(block)];
    Part part = physical_batch_of(units, first, end);
    if (!part.rows.empty()) part.pad(rows_of_parts());
    rows.insert(rows.end(), part.rows.begin(), part.rows.end());
    first = end;
  }
  options_.prefetch_rows(rows);
}

void Engine::compute(const SampledBatch& draw, const Loss& loss) {
  const RowsOfUnits units = rows_of(draw);
  std::vector<std::int64_t> differences(units.starts.size());
  std::adjacent_difference(units.starts.begin(), units.starts.end(), differences.begin());
  const SumBlocks blocks(draw.units(), std::span<const std::int64_t>(differences).subspan(1),
                         block_size_);
  // Parts are made of whole blocks: their ends, in units, from 0, and the rows of each.
  std::vector<std::int64_t> ends = blocks.ends(), rows;
  ends.insert(ends.begin(), 0);
  for (std::size_t k = 1; k < ends.size(); ++k)
    rows.push_back(units.starts[static_cast<std::size_t>(ends[k])] -
                   units.starts[static_cast<std::size_t>(ends[k - 1])]);
  if (options_.prefetch_rows) prefetch(units, ends, rows);
  const auto run = [&](std::int64_t first, std::int64_t end) {
    const auto unit = [&](std::int64_t block) { return ends[static_cast<std::size_t>(block)]; };
    add_physical_batch(loss, physical_batch_of(units, unit(first), unit(end)),
                       {clipper_, phases_, rows_of_parts()});
  };
  clipper_.begin(blocks);
  physical_batches_->over(rows, run, [&] {
    if (!clipper_.broken()) return false;
    clipper_.discard();
    clipper_.begin(blocks);
    return true;
  });
}

// Of the run, by the first release.
void Engine::claim() {
  if (!claim_) claim_ = ledger_.claim();
}

NoisyGradient Engine::release(const Loss& loss) {
  claim();
  const SamplerState before = sampler_->state();
  const std::int64_t releases = ledger_.run_releases();
  try {
    phases_.enter("sample");
    SampledBatch draw = sampler_->draw();
    compute(draw, loss);
    phases_.enter("noise, ledger and update");
    const double on_counts = unclipped_count_stddev(draw.expected_batch_size());
    if (GaussianMechanism* const mechanism = gaussian())
      mechanism->set_noise_multiplier(noise_at(steps_made_));
    return mechanism_->update(clipper_.finish(std::move(draw)), ledger_, optimizer_,
                              budget_.admission(), on_counts);
  } catch (...) {
    clipper_.discard();
    phases_.stop();
    // As if the draw had not been made, unless it was charged.
    if (ledger_.run_releases() == releases) sampler_->load_state(before);
    throw;
  }
}

void Engine::follow_bound_schedule() {
  if (!options_.bound_schedule) return;
  std::vector<double> bounds;
  for (const double first : first_bounds_)
    bounds.push_back(options_.bound_schedule->value(steps_made_, first));
  clipper_.set_bounds(bounds);
}

// Weights that are not finite would go on spending.
void Engine::check_model() {
  const bool assigned = trained_.check_same(model_);
  constexpr std::int64_t steps_on_gpu = 16;
  if (assigned || memory::device_of(optimizer_) == cpu || steps_made_ % steps_on_gpu == 0)
    trained_.check_finite();
}

StepReport Engine::step(const Loss& loss) {
  const OneUser::Call call(user_, "Engine::step", OneUser::Access::changes);
  check_model();
  if (!can_step())
    fail(fmt::format("Engine: no step left: {} made of {}, epsilon {} spent", steps_made_,
                     options_.steps, epsilon_text(epsilon())));
  follow_bound_schedule();
  check(!options_.noise_schedule || noise_at(steps_made_) > 0,
        "Engine: the schedule of noise is {} at step {}", noise_at(steps_made_), steps_made_);
  if (!physical_batches_) plan_memory(loss);
  const memory::LimitScope limit(options_.memory.limit, memory::device_of(optimizer_));
  const NoisyGradient released = release(loss);
  // The next step's noise, ahead; not where there is a limit, whose planner does not count it.
  if (options_.memory.limit == 0) mechanism_->prefetch();
  phases_.stop();
  ++steps_made_;
  if (options_.adaptive_clipping) {
    const auto bounds = bounds_of(clipper_.groups());
    clipper_.set_bounds(options_.adaptive_clipping->next(bounds, released.unclipped_fraction()));
  }
  if (released.finite()) {
    loss_scale_.follow(*released.finite());
    clipper_.set_loss_scale(loss_scale_.value());
  }
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
  // Our next draw comes after this one, at the same place of its pass.
  SamplerState state = sampler_->state();
  state.number = ledger_.next_draw();
  sampler_->load_state(state);
  return means;
}

}  // namespace sotto
