// How many rows the engine computes at once, where it is to find out: dry runs of its own code into
// another clipper, from which nothing is released.
#include <algorithm>
#include <numeric>

#include "dp/engine/engine.h"
#include "dp/numerics/binomial_tail.h"

namespace sotto {

namespace {

// A batch is larger than this many units with a probability of at most 2^-20, about one in a
// million: then it takes more parts, not more memory.
std::int64_t large_batch(const Sampler& sampler) {
  constexpr double tail = 0x1p-20;
  const std::int64_t population = sampler.population();
  const double rate =
      std::min(1.0, sampler.expected_batch_size() / static_cast<double>(population));
  auto min = static_cast<std::int64_t>(sampler.expected_batch_size()), max = population;
  while (min < max) {
    const std::int64_t middle = (min + max) / 2;
    if (binomial_tail(population, rate, middle) <= tail) {
      max = middle;
    } else {
      min = middle + 1;
    }
  }
  return std::max<std::int64_t>(1, max);
}

memory::BackwardPasses backwards_of(ClipPasses passes) {
  return passes == ClipPasses::two ? memory::BackwardPasses::two : memory::BackwardPasses::one;
}

}  // namespace

// The clipper's, and the policy's checkpoints as they suit these.
void Engine::set_passes(ClipPasses passes, std::size_t per_sample_grad_budget) {
  clipper_.set_passes(passes, per_sample_grad_budget);
  const std::optional<int> every = options_.memory.checkpoint;
  if (every) memory::set_checkpoints(model_, *every, backwards_of(passes));
}

// Libraries of GPUs choose by the shape of a batch how they compute it, so that others' gradients
// would show how many there are, and look for a way anew for each size: there parts are filled up.
bool Engine::parts_of_one_size() const { return memory::device_of(optimizer_) != cpu; }

// What parts are filled up to; 0: they are not.
std::int64_t Engine::rows_of_parts() const {
  if (!parts_of_one_size()) return 0;
  return options_.rows_of_unit ? physical_batches_->rows()
                               : std::min(max_physical_batch_, physical_batches_->rows());
}

// Blocks keep their size while the engine lives: the memory that is left during a step must not
// decide which units are summed together. Small parts hold several blocks, so that they are filled
// well. Units of several rows are padded to the largest of their part, and each is a block.
SumBlocks::Limits Engine::block_size(std::int64_t rows) const {
  const std::int64_t max = options_.rows_of_unit ? 1 : SumBlocks::Limits{}.units;
  constexpr std::int64_t max_on_gpu = 16;  // where memory may run out without a limit of ours
  constexpr std::int64_t small = 64;
  std::int64_t units = rows < small ? rows / 4 : rows;
  if (parts_of_one_size()) units = std::min(rows / 4, max_on_gpu);
  return {.units = std::clamp<std::int64_t>(units, 1, max), .rows = rows};
}

void Engine::set_physical_batches(std::int64_t rows) {
  const std::int64_t large = large_batch(*sampler_),
                     parts = options_.memory.accumulation.value_or(1);
  max_physical_batch_ = std::min(rows, (large + parts - 1) / parts);
  if (parts_of_one_size() && !options_.memory.physical_batch && !options_.rows_of_unit) {
    // As many parts as before, of which none is nearly empty.
    const std::int64_t some = (large + max_physical_batch_ - 1) / max_physical_batch_;
    rows = max_physical_batch_ = (large + some - 1) / some;
  }
  block_size_ = block_size(rows);
  physical_batches_.emplace(rows, parts);
  clipper_.set_max_physical_batch(std::min(rows, large));
}

std::optional<std::int64_t> Engine::physical_batch() const {
  if (!physical_batches_) return std::nullopt;
  return parts_of_one_size() ? rows_of_parts() : physical_batches_->rows();
}

// So many rows of the first units, the last of which may be cut; none where nobody has any.
Engine::RowsOfUnits Engine::dry_units(std::int64_t rows) const {
  RowsOfUnits units;
  std::int64_t left = rows;
  for (std::int64_t k = 0; left > 0; ++k) {
    if (k == sampler_->population() && left == rows) break;
    std::vector<std::int64_t> rows_of = rows_of_unit(k % sampler_->population());
    if (std::ssize(rows_of) > left) rows_of.resize(static_cast<std::size_t>(left));
    units.add(rows_of);
    left -= std::ssize(rows_of);
  }
  return units;
}

// Returns the blocks of two parts, none of which reaches from one into the other.
SumBlocks Engine::dry_blocks(std::int64_t units, std::int64_t more, std::int64_t rows) const {
  constexpr std::int64_t far = std::int64_t{1} << 40;
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(units + more));
  std::iota(numbers.begin(), numbers.begin() + units, std::int64_t{0});
  std::iota(numbers.begin() + units, numbers.end(), far);
  // One more row than those of the first part is too many for a block.
  std::vector<std::int64_t> rows_of(numbers.size(), 1);
  if (units > 0 && more > 0) rows_of.back() = rows;
  return {numbers, rows_of, block_size(rows)};
}

// The peak in bytes of computing a part of so many rows, and one of some more that finds the sums
// of the first, as the engine is set now.
std::size_t Engine::dry_peak(const Loss& loss, std::int64_t rows, std::int64_t more) const {
  Clipper clipper(clipper_.groups(), clipper_.options(), clipper_.passes());
  clipper.set_loss_scale(clipper_.loss_scale());
  PhaseProfiler unseen({memory::device_of(optimizer_)});
  const RowsOfUnits parts[] = {dry_units(rows), dry_units(more)};
  clipper.begin(dry_blocks(parts[0].units(), parts[1].units(), rows));
  for (const RowsOfUnits& units : parts) {
    const std::int64_t part = units.starts.back();
    if (part == 0) continue;
    // What is read ahead has to fit, too.
    if (options_.prefetch_rows) options_.prefetch_rows(dry_units(2 * part).rows);
    add_physical_batch(loss, physical_batch_of(units, 0, units.units()), {clipper, unseen});
  }
  unseen.stop();
  return unseen.peak_bytes() + optimizer_.bytes_to_come();
}

// Returns the bytes of the sums in f64, which are there beside the gradients that are released.
std::size_t Engine::sum_bytes() const {
  std::size_t bytes = 0;
  for (const ClipGroup& group : clipper_.groups()) {
    for (const Parameter* parameter : group.parameters) {
      if (parameter->value.dtype() == Dtype::f64) continue;
      bytes += static_cast<std::size_t>(parameter->value.numel()) * size_of(Dtype::f64);
    }
  }
  return bytes;
}

// What the options leave open. A sum by one product over the batch, of factors that were not kept
// as rows, takes about as long as a forward pass; a second backward as two. Checkpoints run at most
// about one forward pass again for each backward.
std::vector<memory::Strategy> Engine::strategies(const memory::MemoryRequirement& requirement) {
  struct Passes {
    const char* name;
    ClipPasses passes;
    std::size_t per_sample_grad_budget;
    double recomputation;
    bool cut;
  };
  const std::size_t rows = options_.clipping.per_sample_grad_budget;
  std::vector<Passes> clips = {{"one pass", ClipPasses::one, rows, 0, false},
                               {"one pass", ClipPasses::one, rows, 0, true},
                               {"one pass without rows", ClipPasses::one, 0, 1, false},
                               {"two passes", ClipPasses::two, rows, 2, false},
                               {"one pass without rows", ClipPasses::one, 0, 1, true},
                               {"two passes", ClipPasses::two, rows, 2, true}};
  const bool can_cut = memory::can_checkpoint(options_.memory, model_);
  std::erase_if(clips, [&](const Passes& clip) {
    return (clip.cut && !can_cut) || clip.passes != options_.passes.value_or(clip.passes);
  });
  std::vector<Dtype> precisions = {options_.memory.precision.value_or(Dtype::f32)};
  // Rounding to 16 bits moves the gradients of all units: it must not rest on what fits where that
  // rests on how many rows the largest unit has.
  if (!options_.memory.precision && !options_.rows_of_unit) precisions.push_back(Dtype::bf16);
  std::vector<memory::Strategy> strategies;
  for (const Dtype precision : precisions) {
    for (const Passes& clip : clips) {
      const auto apply = [this, clip, precision, can_cut]() -> memory::StrategyCost {
        set_passes(clip.passes, clip.per_sample_grad_budget);
        precision_ = precision;
        if (can_cut) memory::set_checkpoints(model_, 0);
        return {clip.recomputation};
      };
      strategies.push_back({fmt::format("{}, {}", clip.name, name(precision)), apply});
      if (!clip.cut) continue;
      strategies.back() = memory::with_checkpoints(strategies.back(), model_, requirement,
                                                   {true, backwards_of(clip.passes)});
    }
  }
  return strategies;
}

void Engine::plan_memory(const Loss& loss) {
  const memory::Policy& policy = options_.memory;
  const std::int64_t parts = policy.accumulation.value_or(1);
  std::int64_t max_unit = 1;
  for (std::int64_t unit = 0; options_.rows_of_unit && unit < sampler_->population(); ++unit)
    max_unit = std::max<std::int64_t>(max_unit, std::ssize(rows_of_unit(unit)));
  const std::int64_t all = large_batch(*sampler_) * max_unit;
  const std::int64_t max = std::max(max_unit, std::min((all + parts - 1) / parts, policy.rows()));
  const auto peak_of = [&](std::int64_t rows) {
    // What the first part may leave, whose last unit may not have fitted in.
    const std::int64_t left = rows >= all ? 0 : std::min(rows, all - rows + max_unit - 1);
    return dry_peak(loss, rows, left > 0 && parts_of_one_size() ? rows : left);
  };
  const memory::MemoryRequirement requirement{
      .peak_of = peak_of,
      .min = max_unit,
      .max = max,
      .update = memory::update_bytes(optimizer_) + sum_bytes(),
      .limit = memory::limit_within(policy.limit, memory::device_of(optimizer_))};
  plan_ = memory::choose_strategy(strategies(requirement), requirement);
  set_physical_batches(plan_->fit().rows);
}

}  // namespace sotto
