#include "dp/engine/memory_planning.h"

#include <algorithm>
#include <numeric>

#include "core/ranks/collectives.h"
#include "dp/clipping/clipper_state.h"

namespace sotto {

namespace {

memory::BackwardPasses backwards_of(ClipPasses passes) {
  return passes == ClipPasses::two ? memory::BackwardPasses::two : memory::BackwardPasses::one;
}

// Dry runs of physical batches with the current settings of the clipper and the model.
class DryRuns {
 public:
  DryRuns(const EngineOptions& options, const nn::Optimizer& optimizer, const Clipper& clipper,
          const UnitBatches& batches, const MemoryPlanning::Run& run)
      : options_(options), optimizer_(optimizer), clipper_(clipper), batches_(batches), run_(run) {}

  // Returns the peak in bytes of computing a physical batch of `rows` rows and then, while the sums
  // of the first are held, one of `more` rows.
  std::size_t peak(std::int64_t rows, std::int64_t more) const {
    Clipper clipper(clipper_.groups(), clipper_.options(), clipper_.state().passes());
    clipper.set_loss_scale(clipper_.loss_scale());
    memory::PhaseProfiler unseen({memory::device_of(optimizer_)});
    const UnitRows all[] = {first_units(rows), first_units(more)};
    clipper.state().begin(blocks(all[0].units(), all[1].units(), rows));
    for (const UnitRows& units : all) {
      const std::int64_t count = units.starts.back();
      if (count == 0) continue;
      // Prefetched rows have to fit, too.
      if (options_.prefetch_rows) options_.prefetch_rows(first_units(2 * count).rows);
      run_(batches_.physical_batch(units, 0, units.units()), clipper, unseen);
    }
    unseen.stop();
    return unseen.peak_bytes() + optimizer_.bytes_to_come();
  }

 private:
  // Returns the first `count` rows of units 0, 1, ... (cyclically); the last unit may be cut.
  // Returns no rows if no unit has any.
  UnitRows first_units(std::int64_t count) const {
    UnitRows units;
    std::int64_t left = count;
    for (std::int64_t k = 0; left > 0; ++k) {
      if (k == batches_.population() && left == count) break;
      const std::int64_t unit = k % batches_.population();
      std::vector<std::int64_t> rows = batches_.rows_of_unit(unit);
      if (std::ssize(rows) > left) rows.resize(static_cast<std::size_t>(left));
      units.add(unit, rows);
      left -= std::ssize(rows);
    }
    return units;
  }

  // Returns the blocks of two physical batches; no block contains units of both.
  SumBlocks blocks(std::int64_t units, std::int64_t more, std::int64_t rows) const {
    constexpr std::int64_t far = std::int64_t{1} << 40;
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(units + more));
    std::iota(numbers.begin(), numbers.begin() + units, std::int64_t{0});
    std::iota(numbers.begin() + units, numbers.end(), far);
    // The limit on a block's rows keeps the last unit, which is given `rows` rows, in its own
    // block.
    std::vector<std::int64_t> rows_of(numbers.size(), 1);
    if (units > 0 && more > 0) rows_of.back() = rows;
    return {numbers, rows_of, batches_.block_limits(rows)};
  }

  const EngineOptions& options_;
  const nn::Optimizer& optimizer_;
  const Clipper& clipper_;
  const UnitBatches& batches_;
  const MemoryPlanning::Run& run_;
};

// Returns the bytes of the f64 sums, which are held beside the released gradients.
std::size_t sum_bytes(const Clipper& clipper) {
  std::size_t bytes = 0;
  for (const ClipGroup& group : clipper.groups()) {
    for (const Parameter* parameter : group.parameters) {
      if (parameter->value.dtype() == Dtype::f64) continue;
      bytes += static_cast<std::size_t>(parameter->value.numel()) * size_of(Dtype::f64);
    }
  }
  return bytes;
}

struct ClipStrategy {
  const char* name;
  ClipPasses passes;
  std::optional<std::size_t> per_sample_grad_budget;
  double recomputation;
  bool checkpoints;
};

// The strategies for clipping, with their recomputation in units of one forward pass: a weighted
// sum of factors that were not materialized costs about 1, a second backward about 2. Activation
// checkpoints add at most about 1 for each backward.
// Where no budget is given, most of the limit is left to activations. With rows_of_unit none is
// left that would round the norms or sums of all units otherwise: what fits depends on the rows of
// the largest unit.
std::vector<ClipStrategy> clip_strategies(const EngineOptions& options, Device device,
                                          std::size_t limit, bool can_checkpoint) {
  const std::size_t budget =
      options.clipping.per_sample_grad_budget.value_or(automatic_grad_budget(device, limit / 4));
  std::vector<ClipStrategy> all = {{"one pass", ClipPasses::one, budget, 0, false},
                                   {"one pass", ClipPasses::one, budget, 0, true},
                                   {"one pass, nothing materialized", ClipPasses::one, 0, 1, false},
                                   {"two passes", ClipPasses::two, budget, 2, false},
                                   {"one pass, nothing materialized", ClipPasses::one, 0, 1, true},
                                   {"two passes", ClipPasses::two, budget, 2, true}};
  std::erase_if(all, [&](const ClipStrategy& clip) {
    const bool units = static_cast<bool>(options.rows_of_unit);
    return (clip.checkpoints && !can_checkpoint) ||
           clip.passes != options.passes.value_or(units ? ClipPasses::one : clip.passes) ||
           (units && clip.per_sample_grad_budget != budget);
  });
  return all;
}

void set_rows(const PlannedParts& parts, std::int64_t rows) {
  parts.batches.set_rows(rows);
  parts.clipper.state().set_max_physical_batch(parts.batches.max_units());
}

// Sets the clipper's passes, and the policy's activation checkpoints for that number of passes.
void set_passes(const PlannedParts& parts, ClipPasses passes,
                std::optional<std::size_t> per_sample_grad_budget) {
  parts.clipper.state().set_passes(passes, per_sample_grad_budget);
  const std::optional<int> every = parts.options.memory.checkpoint;
  if (every) memory::set_checkpoints(parts.model, *every, backwards_of(passes));
}

}  // namespace

MemoryPlanning::MemoryPlanning(const PlannedParts& parts)
    : parts_(parts), precision_(parts.options.memory.precision.value_or(Dtype::f32)) {
  const Clipper& clipper = parts.clipper;
  set_passes(parts, clipper.state().passes(), clipper.options().per_sample_grad_budget);
  if (parts.options.memory.limit == 0) set_rows(parts, parts.options.memory.rows());
}

// Returns the strategies that the options leave open.
std::vector<memory::Strategy> MemoryPlanning::strategies(
    const memory::MemoryRequirement& requirement) {
  const bool can_checkpoint = memory::can_checkpoint(parts_.options.memory, parts_.model);
  const Device device = memory::device_of(parts_.optimizer);
  std::vector<Dtype> precisions = {parts_.options.memory.precision.value_or(Dtype::f32)};
  // Rounding to 16 bits changes the gradients of all units. With rows_of_unit it is no option: what
  // fits the limit depends on the data, namely on the number of rows of the largest unit.
  if (!parts_.options.memory.precision && !parts_.options.rows_of_unit)
    precisions.push_back(Dtype::bf16);
  std::vector<memory::Strategy> strategies;
  for (const Dtype precision : precisions) {
    for (const ClipStrategy& clip :
         clip_strategies(parts_.options, device, requirement.limit, can_checkpoint)) {
      const auto apply = [this, clip, precision, can_checkpoint]() -> memory::StrategyCost {
        set_passes(parts_, clip.passes, clip.per_sample_grad_budget);
        precision_ = precision;
        if (can_checkpoint) memory::set_checkpoints(parts_.model, 0);
        return {clip.recomputation};
      };
      strategies.push_back({fmt::format("{}, {}", clip.name, name(precision)), apply});
      if (!clip.checkpoints) continue;
      strategies.back() = memory::with_checkpoints(strategies.back(), parts_.model, requirement,
                                                   {true, backwards_of(clip.passes)});
    }
  }
  return strategies;
}

void MemoryPlanning::agree(Ranks& ranks) {
  struct Choice {
    std::uint64_t strategy;
    std::int64_t rows;
  };
  memory::Plan& plan = *plan_;
  std::int64_t& rows = plan.considered[plan.chosen].fit.rows;
  const auto all = all_gather(ranks, "Engine: memory plan", Choice{plan.chosen, rows});
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    check(all[rank].strategy == all[0].strategy,
          "memory: the limit leaves rank {} the strategy number {} and rank 0 number {}: give a "
          "precision, a number of passes and activation checkpoints",
          rank, all[rank].strategy, all[0].strategy);
    rows = std::min(rows, all[rank].rows);
  }
}

void MemoryPlanning::choose(const Run& run, Ranks& ranks) {
  const memory::Policy& policy = parts_.options.memory;
  const std::int64_t batches = policy.accumulation.value_or(1);
  std::int64_t max_unit = 1;
  for (std::int64_t unit = 0; parts_.options.rows_of_unit && unit < parts_.batches.population();
       ++unit)
    max_unit = std::max<std::int64_t>(max_unit, std::ssize(parts_.batches.rows_of_unit(unit)));
  const std::int64_t all = parts_.batches.large_batch() * max_unit;
  const std::int64_t max_rows =
      std::max(max_unit, std::min((all + batches - 1) / batches, policy.rows()));
  const DryRuns dry_runs(parts_.options, parts_.optimizer, parts_.clipper, parts_.batches, run);
  const auto peak_of = [&](std::int64_t rows) {
    // The rows that may remain for the second physical batch; the first may end short of `rows`,
    // because its next unit did not fit.
    const std::int64_t left = rows >= all ? 0 : std::min(rows, all - rows + max_unit - 1);
    return dry_runs.peak(rows, left > 0 && parts_.batches.padded() ? rows : left);
  };
  const memory::MemoryRequirement requirement{
      .peak_of = peak_of,
      .min = max_unit,
      .max = max_rows,
      .update = memory::update_bytes(parts_.optimizer) + sum_bytes(parts_.clipper),
      .limit = memory::limit_within(policy.limit, memory::device_of(parts_.optimizer))};
  plan_ = memory::choose_strategy(strategies(requirement), requirement);
  agree(ranks);
  set_rows(parts_, plan_->fit().rows);
}

}  // namespace sotto
