// From privacy units to physical batches: the rows of each unit, which rows are computed together,
// and what a physical batch is padded with.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "dp/clipping/clipper.h"
#include "dp/engine/engine_options.h"
#include "dp/sampling/sampler.h"
#include "memory/physical_batches.h"

namespace sotto {

// Rows that are computed together, and the units that they belong to.
struct PhysicalBatch {
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> draws;  // the numbers of the rows' public randomness
  Grouping grouping;
  // Appends padding rows, copies of the first one, up to `count` rows. They belong to no unit.
  void pad(std::int64_t count);
};

// The rows of some units: unit k has the rows starts[k] .. starts[k + 1] - 1.
struct UnitRows {
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> starts{0};
  std::int64_t units() const { return std::ssize(starts) - 1; }
  void add(std::span<const std::int64_t> rows_of_next);
};

class UnitBatches {
 public:
  // Computes one physical batch.
  using Run = std::function<void(PhysicalBatch batch)>;

  // The options and the sampler outlive it; computations are on `device`.
  UnitBatches(const EngineOptions& options, const Sampler& sampler, Device device);

  // Sets the most rows of a physical batch.
  void set_rows(std::int64_t rows);
  // Rows of a physical batch: at most so many, halved when memory runs out; nothing before
  // set_rows(). On a GPU every physical batch is padded to so many.
  std::optional<std::int64_t> rows() const;
  // The most units of a physical batch, of the sizes that are to be expected.
  std::int64_t max_units() const { return max_units_; }
  // A batch is larger than this many units with a probability of at most 2^-20, about one in a
  // million: then it takes more physical batches, not more memory.
  std::int64_t large_batch() const { return large_batch_; }
  // Whether all physical batches have one size.
  bool padded() const { return device_ != cpu; }

  // Adds the batch to the clipper: `run` computes each of its physical batches in turn, in smaller
  // ones when memory runs out (memory::PhysicalBatches).
  void over(const SampledBatch& batch, Clipper& clipper, const Run& run);

  std::vector<std::int64_t> rows_of_unit(std::int64_t unit) const;
  // Units first .. end - 1, without padding.
  PhysicalBatch physical_batch(const UnitRows& units, std::int64_t first, std::int64_t end) const;
  // The sizes of blocks of units that are summed as one, for physical batches of so many rows.
  SumBlocks::Limits block_limits(std::int64_t rows) const;
  std::int64_t population() const { return sampler_.population(); }

 private:
  UnitRows rows_of(const SampledBatch& batch) const;
  PhysicalBatch padded_batch(const UnitRows& units, std::int64_t first, std::int64_t end) const;
  std::int64_t padded_rows() const;
  void prefetch(const UnitRows& units, std::span<const std::int64_t> block_ends,
                std::span<const std::int64_t> rows_of_blocks) const;

  const EngineOptions& options_;
  const Sampler& sampler_;
  Device device_;
  std::int64_t large_batch_;
  std::int64_t max_rows_ = 0;  // of a physical batch, where units have one row each
  std::int64_t max_units_ = 0;
  SumBlocks::Limits block_limits_;
  std::optional<memory::PhysicalBatches> physical_batches_;
};

}  // namespace sotto
