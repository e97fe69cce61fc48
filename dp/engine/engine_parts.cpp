#include "dp/engine/engine_parts.h"

#include <utility>

#include "core/ranks/one_rank.h"
#include "dp/clipping/clipper_state.h"
#include "dp/engine/rank_agreement.h"
#include "dp/engine/validation.h"

namespace sotto {

namespace {

// The options with the ranks of the run: those given, the ledger's, or this process alone.
EngineOptions validated(nn::Module& model, const nn::Optimizer& optimizer, std::int64_t population,
                        const Dataset* data, const Ledger& ledger, const EngineOptions& options) {
  EngineOptions checked = options;
  checked.ranks = given_ranks(options, ledger);
  const std::vector<std::string> problems =
      engine_problems(model, optimizer, population, checked, ledger.header());
  checked.ranks = ranks_or_one(checked.ranks);
  check_agreement({model, optimizer, population, data, checked, ledger}, problems);
  return checked;
}

// True if unit k consists of row k, for all rows.
bool one_row_each(const Grouping& grouping) {
  for (std::size_t row = 0; row < grouping.unit_of_row.size(); ++row) {
    if (grouping.unit_of_row[row] != static_cast<std::int64_t>(row)) return false;
  }
  return grouping.units == static_cast<std::int64_t>(grouping.unit_of_row.size());
}

}  // namespace

std::unique_ptr<Engine::Parts> Engine::Parts::make(nn::Module& model, nn::Optimizer& optimizer,
                                                   std::int64_t population, const Dataset* data,
                                                   const Ledger& ledger,
                                                   const EngineOptions& options) {
  const EngineOptions checked = validated(model, optimizer, population, data, ledger, options);
  std::unique_ptr<Parts> parts;
  abort_on_error(*checked.ranks, [&] {
    parts = std::make_unique<Parts>(model, optimizer, population, data, ledger, checked);
  });
  return parts;
}

Engine::Parts::Parts(nn::Module& model, nn::Optimizer& optimizer, std::int64_t population,
                     const Dataset* data, const Ledger& ledger, const EngineOptions& checked)
    : options_(checked),
      model_(model),
      agreement_(options_.ranks, optimizer),
      release_(model, population, ledger, options_, agreement_),
      update_(model, optimizer, release_.clipper(), options_),
      batches_(options_, release_.sampler(), memory::device_of(optimizer)),
      planning_({options_, model, optimizer, release_.clipper(), batches_}),
      data_(data != nullptr ? std::optional(*data) : std::nullopt),
      facts_(option_facts(model, population, options_)),
      phases_({memory::device_of(optimizer)}) {
  const std::vector<Fact> of_optimizer = optimizer_facts(optimizer);
  facts_.insert(facts_.end(), of_optimizer.begin(), of_optimizer.end());
  on_rank_0(agreement_.ranks(), "Engine: plan", [&] { release_.plan(); });
  release_.set_population();
  share_progress();
}

bool Engine::Parts::can_step() const {
  if (options_.steps > 0 && steps_made_ >= options_.steps) return false;
  return agreement_.alone() ? release_.within_target(steps_made_) : may_step_;
}

// Computes a physical batch forward and backward into the clipper.
void Engine::Parts::run(const Loss& loss, PhysicalBatch batch, Clipper& to,
                        memory::PhaseProfiler& times) const {
  if (batch.rows.empty()) return to.add_zeros(batch.grouping.units);
  // In a batch of one row the sample axis could not be told from other axes of size 1.
  batch.pad(2);
  times.enter("forward");
  Tape tape({.private_data = true,
             .precision = planning_.precision(),
             .seed = options_.seed,
             .step = static_cast<std::uint64_t>(steps_made_),
             .rows = std::move(batch.draws)});
  const Var losses = loss(tape, batch.rows);
  check(losses.shape() == Shape{static_cast<std::int64_t>(batch.rows.size())},
        "Engine: a loss of shape {} for {} rows; return one loss for each row; the engine averages",
        losses.shape(), batch.rows.size());
  times.enter("backward and clip");
  to.add(tape, losses, one_row_each(batch.grouping) ? nullptr : &batch.grouping);
}

// Plan memory first, under a limit before the first step: the piece size, and so each unit's owner,
// follows from it.
void Engine::Parts::plan_memory(const Loss& loss) {
  if (batches_.rows()) return;
  on_rank_0(agreement_.ranks(), "Engine::step", [&] {
    update_.check_model(steps_made_);
    release_.check_step(steps_made_);
    release_.follow_schedules(steps_made_);
  });
  if (!agreement_.leads()) update_.check_model(steps_made_);
  phases_.stop();  // dry runs belong to no phase
  planning_.choose([&](const auto& batch, auto& dry, auto& times) { run(loss, batch, dry, times); },
                   agreement_.ranks());
}

// Rank 0's decisions on the next step.
StepOrder Engine::Parts::decide() {
  update_.check_model(steps_made_);
  release_.check_step(steps_made_);
  release_.claim();
  release_.follow_schedules(steps_made_);
  return {steps_made_, noise_multiplier(), update_.loss_scale().value(),
          release_.clipper().bounds()};
}

// Bounds and the loss scale are rank 0's to adapt: the others get them with each order.
void Engine::Parts::follow(const StepOrder& order) {
  update_.check_model(order.steps_made);
  release_.claim();
  steps_made_ = order.steps_made;
  release_.clipper().set_bounds(order.bounds);
  release_.clipper().set_loss_scale(order.loss_scale);
}

StepReport Engine::Parts::step(const Loss& loss) {
  std::optional<StepOrder> order;
  std::optional<Release::Place> before;  // on rank 0
  const auto decided = [&] {
    StepOrder own = decide();
    before = release_.place();
    return *(order = std::move(own));
  };
  const auto followed = [&](const StepOrder& of_rank_0) { follow(*(order = of_rank_0)); };
  const auto make = [&] {
    plan_memory(loss);
    phases_.enter("sample");
    SampledBatch batch = release_.draw(
        {.place = "Engine::step", .decide = decided, .follow = followed}, batches_.owners());
    compute(loss, std::move(batch), order->noise_multiplier);
  };
  const auto take_back = [&] {
    if (order) release_.discard();
    phases_.stop();
    share_progress([&] {
      if (before) release_.return_to(*before);
    });
  };
  abort_on_error(agreement_.ranks(), make, take_back);
  return {steps_made_, &release_.clipper().statistics(), std::move(order->bounds)};
}

// Clips the batch, on each rank its own units, and releases its sum.
void Engine::Parts::compute(const Loss& loss, SampledBatch batch, double noise_multiplier) {
  const memory::LimitScope limit(options_.memory.limit, memory::device_of(update_.optimizer()));
  Clipper& clipper = release_.clipper();
  clipper.state().share(agreement_.shards());
  clipper.state().defer_sums();  // no code of the caller runs between the last loss and the release
  batches_.over(
      batch, clipper,
      [&](PhysicalBatch physical) { run(loss, std::move(physical), clipper, phases_); },
      rank_of(options_));
  phases_.enter("noise, ledger and update");
  const NoisyGradient released =
      release_.update(noise_multiplier, std::move(batch), update_.optimizer());
  // Prefetches the next step's noise, except under a memory limit, whose planner does not count it.
  if (options_.memory.limit == 0) release_.prefetch();
  phases_.stop();
  ++steps_made_;
  if (agreement_.leads()) update_.adapt(released);  // the others have no counts
  if (options_.target_epsilon) share_progress();
}

// Calls `first` on rank 0, and gets the others as far as rank 0 is.
void Engine::Parts::share_progress(const std::function<void()>& first) {
  if (agreement_.alone()) return first();
  const auto [steps, noise, may] = broadcast(agreement_.ranks(), "Engine: progress", [&] {
    first();
    return std::tuple(steps_made_, release_.noise().initial(), release_.within_target(steps_made_));
  });
  steps_made_ = steps;
  may_step_ = may;
  release_.set_initial_noise(noise);
}

std::vector<double> Engine::Parts::release_means(const MeanQuery& query) {
  check(!options_.noise_strategy,
        "release_means: a plan of correlated noise allows no other releases in between");
  std::vector<double> means;
  abort_on_error(agreement_.ranks(), [&] {
    means = release_.means(query, batches_);
    ++means_released_;
    if (options_.target_epsilon) share_progress();
  });
  return means;
}

}  // namespace sotto
