#include "dp/engine/unit_batches.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "dp/clipping/clipper_state.h"
#include "dp/engine/disjoint_rows.h"
#include "dp/numerics/binomial_tail.h"

namespace sotto {

namespace {

constexpr std::int64_t max_bucket = std::int64_t{1} << 31;  // exclusive, of buckets and of widths

// The part of a batch, of 1 / `ranks`, that is exceeded with a probability of 2^-20.
std::int64_t large_batch_of(const Sampler& sampler, int ranks) {
  constexpr double tail = 0x1p-20;
  const std::int64_t population = sampler.population();
  const double expected = sampler.expected_batch_size() / ranks;
  const double rate = std::min(1.0, expected / static_cast<double>(population));
  auto low = static_cast<std::int64_t>(expected), high = population;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (binomial_tail(population, rate, middle) <= tail) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return std::max<std::int64_t>(1, high);
}

// Adds the numbers that key the public randomness of a unit's rows: by the unit's number and the
// place within it. Numbers of rows would not do, since others' numbers of rows may decide them.
void add_draws(std::int64_t unit, std::int64_t rows, std::vector<std::int64_t>& draws) {
  constexpr std::int64_t next_row = std::int64_t{1} << 40;
  for (std::int64_t row = 0; row < rows; ++row) draws.push_back(unit + row * next_row);
}

// The rows of all physical batches, padding included: those of the blocks before each of `ends`,
// where block k holds the units up to block_ends[k].
template <class MakeBatch>
std::vector<std::int64_t> all_rows(std::span<const std::int64_t> ends,
                                   std::span<const std::int64_t> block_ends,
                                   const MakeBatch& make_batch) {
  std::vector<std::int64_t> rows;
  std::int64_t first = block_ends[0];
  for (const std::int64_t block : ends) {
    const std::int64_t end = block_ends[static_cast<std::size_t>(block)];
    const PhysicalBatch batch = make_batch(first, end);
    rows.insert(rows.end(), batch.rows.begin(), batch.rows.end());
    first = end;
  }
  return rows;
}

// The rows of the units, one row each if `rows_of_unit` is empty.
UnitRows rows_of(std::span<const std::int64_t> numbers,
                 const std::function<std::vector<std::int64_t>(std::int64_t)>& rows_of_unit) {
  UnitRows units;
  if (!rows_of_unit) {
    units.numbers = units.rows = {numbers.begin(), numbers.end()};
    units.starts.resize(numbers.size() + 1);
    std::iota(units.starts.begin(), units.starts.end(), 0);
    return units;
  }
  for (const std::int64_t unit : numbers) units.add(unit, rows_of_unit(unit));
  check_rows_apart(numbers, units.rows, units.starts);
  return units;
}

}  // namespace

void PhysicalBatch::pad(std::int64_t count) {
  const auto more = static_cast<std::size_t>(std::max<std::int64_t>(0, count - std::ssize(rows)));
  rows.insert(rows.end(), more, std::int64_t{rows[0]});
  draws.insert(draws.end(), more, std::int64_t{draws[0]});
  grouping.unit_of_row.insert(grouping.unit_of_row.end(), more, -1);
}

std::int64_t UnitRows::width_of(std::int64_t unit) const {
  const std::size_t rows = of(unit).size();
  return rows == 0 ? 0 : static_cast<std::int64_t>(std::bit_ceil(rows));
}

void UnitRows::add(std::int64_t number, std::span<const std::int64_t> its_rows) {
  numbers.push_back(number);
  rows.insert(rows.end(), its_rows.begin(), its_rows.end());
  starts.push_back(std::ssize(rows));
}

UnitBatches::UnitBatches(const EngineOptions& options, const Sampler& sampler, Device device)
    : options_(options),
      sampler_(sampler),
      device_(device),
      large_batch_(large_batch_of(sampler, 1)),
      large_part_(large_batch_of(sampler, rank_of(options).ranks)),
      owners_(options) {}

void UnitBatches::set_rows(std::int64_t rows) {
  const std::int64_t batches = options_.memory.accumulation.value_or(1);
  max_rows_ = std::min(rows, (large_batch_ + batches - 1) / batches);
  if (padded() && !options_.memory.physical_batch && !options_.rows_of_unit) {
    // Evens out the sizes: the number of this rank's physical batches stays, but none is nearly
    // empty.
    const std::int64_t count = (large_part_ + max_rows_ - 1) / max_rows_;
    rows = max_rows_ = (large_part_ + count - 1) / count;
  }
  max_units_ = std::min(rows, large_batch_);
  block_limits_ = block_limits(rows);
  // The small blocks of a GPU would often be halved if each were a piece.
  const std::int64_t blocks = padded() ? 2 : 1;
  owners_.set_pieces(sampler_, blocks * block_limits_.units);
  physical_batches_.emplace(rows, batches);
}

// Returns the number of rows that physical batches are padded to; 0 without padding. cuBLAS and
// cuDNN pick algorithms by shape, so a sample's rounding would reveal the batch size, and every new
// size costs a plan search. On a GPU all physical batches are therefore padded to one size.
std::int64_t UnitBatches::padded_rows() const {
  if (!padded()) return 0;
  return options_.rows_of_unit ? physical_batches_->rows()
                               : std::min(max_rows_, physical_batches_->rows());
}

std::optional<std::int64_t> UnitBatches::rows() const {
  if (!physical_batches_) return std::nullopt;
  return padded() ? padded_rows() : physical_batches_->rows();
}

// The limits are fixed while the engine lives: memory that is free during a step must not decide
// which units are summed together. Blocks are smaller than physical batches, so that whole blocks
// fill a physical batch well. Each unit of several rows is a block of its own, since units with
// other numbers of rows are in other physical batches.
SumBlocks::Limits UnitBatches::block_limits(std::int64_t rows) const {
  const std::int64_t max_units = options_.rows_of_unit ? 1 : SumBlocks::Limits{}.units;
  constexpr std::int64_t max_on_gpu = 16;  // physical batches may shrink when memory runs out
  constexpr std::int64_t small = 64;
  std::int64_t units = rows < small ? rows / 4 : rows;
  if (padded()) units = std::min(rows / 4, max_on_gpu);
  return {.units = std::clamp<std::int64_t>(units, 1, max_units), .rows = rows};
}

std::vector<std::int64_t> UnitBatches::rows_of_unit(std::int64_t unit) const {
  if (!options_.rows_of_unit) return {unit};
  return options_.rows_of_unit(unit);
}

PhysicalBatch UnitBatches::physical_batch(const UnitRows& units, std::int64_t first,
                                          std::int64_t end) const {
  const auto start = [&](std::int64_t unit) {
    return units.starts[static_cast<std::size_t>(unit)];
  };
  PhysicalBatch batch{{units.rows.begin() + start(first), units.rows.begin() + start(end)}, {}, {}};
  batch.grouping = {.unit_of_row = {}, .units = end - first, .mean = options_.mean_of_rows};
  if (!options_.rows_of_unit) {  // row k is unit k
    batch.grouping.unit_of_row.resize(batch.rows.size());
    std::iota(batch.grouping.unit_of_row.begin(), batch.grouping.unit_of_row.end(), 0);
    batch.draws = batch.rows;
    return batch;
  }
  batch.grouping.unit_of_row.reserve(batch.rows.size());
  for (std::int64_t unit = first; unit < end; ++unit) {
    const auto rows = units.of(unit).size();
    add_draws(units.numbers[static_cast<std::size_t>(unit)], std::ssize(units.of(unit)),
              batch.draws);
    batch.grouping.width = std::max(batch.grouping.width, units.width_of(unit));
    batch.grouping.unit_of_row.insert(batch.grouping.unit_of_row.end(), rows, unit - first);
  }
  return batch;
}

PhysicalBatch UnitBatches::padded_batch(const UnitRows& units, std::int64_t first,
                                        std::int64_t end) const {
  PhysicalBatch batch = physical_batch(units, first, end);
  if (!batch.rows.empty()) batch.pad(padded_rows());
  return batch;
}

std::int64_t UnitBatches::bucket_of(std::int64_t unit) const {
  if (!options_.bucket_of_unit) return 0;
  const std::int64_t bucket = options_.bucket_of_unit(unit);
  check(bucket >= 0 && bucket < max_bucket, "bucket_of_unit: the bucket of unit {} is {}", unit,
        bucket);
  return bucket;
}

// The kind of each unit: those of different kinds are in different physical batches. Empty if all
// are alike.
std::vector<std::int64_t> UnitBatches::kinds_of(const UnitRows& units) const {
  std::vector<std::int64_t> kinds;
  if (!options_.rows_of_unit && !options_.bucket_of_unit) return kinds;
  for (std::int64_t unit = 0; unit < units.units(); ++unit) {
    const std::int64_t bucket = bucket_of(units.numbers[static_cast<std::size_t>(unit)]);
    kinds.push_back(bucket * max_bucket + units.width_of(unit));
  }
  return kinds;
}

// A rank computes whole blocks of units, in the order of their kinds. The units of a block have one
// kind: a unit that leaves a batch changes the block of its own kind and no other.
struct UnitBatches::Items {
  SumBlocks blocks;
  UnitRows units;
  std::vector<std::int64_t> ends;   // 0 and the ends of the blocks, counted in `units`
  std::vector<std::int64_t> rows;   // of each block
  std::vector<std::int64_t> kinds;  // of each block's units; empty: all are alike
};

UnitBatches::Items UnitBatches::items_of(const OwnedUnits& own) const {
  const UnitRows units = rows_of(own.units, options_.rows_of_unit);
  const std::vector<std::int64_t> kinds = kinds_of(units);
  const auto kind = [&](std::int64_t k) {
    return kinds.empty() ? 0 : kinds[static_cast<std::size_t>(k)];
  };
  std::vector<std::int64_t> order(own.units.size());
  std::iota(order.begin(), order.end(), 0);
  if (!kinds.empty()) std::ranges::stable_sort(order, {}, kind);
  UnitRows sorted;
  std::vector<std::int64_t> rows, groups;  // a group: units of one owner and kind
  for (std::size_t k = 0; k < order.size(); ++k) {
    const auto unit = static_cast<std::size_t>(order[k]),
               before = static_cast<std::size_t>(order[k == 0 ? 0 : k - 1]);
    const bool same =
        own.owners[unit] == own.owners[before] && kind(order[k]) == kind(order[k == 0 ? 0 : k - 1]);
    groups.push_back(k == 0 ? 0 : groups.back() + (same ? 0 : 1));
    sorted.add(units.numbers[unit], units.of(order[k]));
    rows.push_back(std::ssize(units.of(order[k])));
  }
  Items items{{sorted.numbers, rows, block_limits_, groups}, std::move(sorted), {0}, {}, {}};
  for (const std::int64_t end : items.blocks.ends()) {
    const std::int64_t first = items.ends.back();
    const auto start = [&](std::int64_t k) {
      return items.units.starts[static_cast<std::size_t>(k)];
    };
    items.rows.push_back(start(end) - start(first));
    if (!kinds.empty()) items.kinds.push_back(kind(order[static_cast<std::size_t>(first)]));
    items.ends.push_back(end);
  }
  return items;
}

void UnitBatches::over(const SampledBatch& batch, Clipper& clipper, const Run& run, RankOf rank) {
  const Items items = items_of(owners_.of(rank, batch.units()));
  const auto batch_of = [&](std::int64_t from, std::int64_t to) {
    return padded_batch(items.units, from, to);
  };
  if (options_.prefetch_rows)
    options_.prefetch_rows(
        all_rows(physical_batches_->ends(items.rows, items.kinds), items.ends, batch_of));
  const auto run_blocks = [&](std::int64_t from, std::int64_t to) {
    const auto unit = [&](std::int64_t block) {
      return items.ends[static_cast<std::size_t>(block)];
    };
    run(batch_of(unit(from), unit(to)));
  };
  clipper.state().begin(items.blocks);
  const auto lost = [&] {
    if (!clipper.broken()) return false;
    clipper.discard();
    clipper.state().begin(items.blocks);
    return true;
  };
  physical_batches_->over(items.rows, run_blocks, lost, items.kinds);
}

}  // namespace sotto
