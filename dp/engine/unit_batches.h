// Physical batches of privacy units: the rows of each unit, the division of a logical batch into
// physical batches, and their padding. A unit's gradient must not depend on the other units, not
// even in its last bits: units of several rows are computed together with those whose number of
// rows has the same power of two above it, and units of a bucket with those of the same
// (EngineOptions::bucket_of_unit).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "autograd/per_sample/grouping.h"
#include "dp/clipping/clipper.h"
#include "dp/clipping/sum_blocks.h"
#include "dp/engine/engine_options.h"
#include "dp/engine/unit_owners.h"
#include "dp/sampling/sampler.h"
#include "memory/physical_batches.h"

namespace sotto {

// The rows that are computed together, and the units that they belong to.
struct PhysicalBatch {
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> draws;  // for each row, the number that keys its public randomness
  Grouping grouping;
  // Appends padding rows, copies of the first one, up to `count` rows. They belong to no unit.
  void pad(std::int64_t count);
};

// The rows of several units: the k-th has rows[starts[k]] to rows[starts[k + 1] - 1].
struct UnitRows {
  std::vector<std::int64_t> numbers;  // of the units
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> starts{0};
  std::int64_t units() const { return std::ssize(starts) - 1; }
  // The rows of a unit.
  std::span<const std::int64_t> of(std::int64_t unit) const {
    const auto k = static_cast<std::size_t>(unit);
    return {rows.begin() + starts[k], rows.begin() + starts[k + 1]};
  }
  // The number of rows that a unit is padded to: the next power of two; 0 for a unit without rows.
  std::int64_t width_of(std::int64_t unit) const;
  void add(std::int64_t number, std::span<const std::int64_t> its_rows);
};

class UnitBatches {
 public:
  // Computes one physical batch.
  using Run = std::function<void(PhysicalBatch batch)>;

  // The options and the sampler must outlive this object; `device` is that of the computations.
  UnitBatches(const EngineOptions& options, const Sampler& sampler, Device device);

  // Sets the maximum number of rows of a physical batch.
  void set_rows(std::int64_t rows);
  // The maximum number of rows of a physical batch, halved after each out-of-memory error; nullopt
  // before set_rows(). On a GPU every physical batch is padded to it.
  std::optional<std::int64_t> rows() const;
  // The maximum number of units of a physical batch, for logical batches up to large_batch().
  std::int64_t max_units() const { return max_units_; }
  // The number of units that a logical batch exceeds with a probability of at most 2^-20. A larger
  // batch takes more physical batches, not more memory.
  std::int64_t large_batch() const { return large_batch_; }
  // True if all physical batches are padded to one size, on a GPU.
  bool padded() const { return device_ != cpu; }

  // Adds the batch to the clipper, or with several ranks this one's units: `run` computes the
  // physical batches one after the other. When memory runs out, the rest is divided
  // into smaller ones (memory::PhysicalBatches).
  void over(const SampledBatch& batch, Clipper& clipper, const Run& run, RankOf rank = {});

  // The owners of the units, after set_rows().
  const UnitOwners& owners() const { return owners_; }
  std::vector<std::int64_t> rows_of_unit(std::int64_t unit) const;
  // EngineOptions::bucket_of_unit, or 0 without it. Throws std::invalid_argument, with the unit,
  // for a number below 0.
  std::int64_t bucket_of(std::int64_t unit) const;
  // The physical batch of units[first] to units[end - 1], without padding rows.
  PhysicalBatch physical_batch(const UnitRows& units, std::int64_t first, std::int64_t end) const;
  // The limits of the blocks of units that are summed before rounding (SumBlocks), for physical
  // batches of `rows` rows.
  SumBlocks::Limits block_limits(std::int64_t rows) const;
  std::int64_t population() const { return sampler_.population(); }

 private:
  struct Items;
  Items items_of(const OwnedUnits& own) const;
  std::vector<std::int64_t> kinds_of(const UnitRows& units) const;
  PhysicalBatch padded_batch(const UnitRows& units, std::int64_t first, std::int64_t end) const;
  std::int64_t padded_rows() const;

  const EngineOptions& options_;
  const Sampler& sampler_;
  Device device_;
  std::int64_t large_batch_;
  std::int64_t large_part_;    // of a rank
  std::int64_t max_rows_ = 0;  // of a physical batch of units with one row each
  std::int64_t max_units_ = 0;
  SumBlocks::Limits block_limits_;
  UnitOwners owners_;
  std::optional<memory::PhysicalBatches> physical_batches_;
};

}  // namespace sotto
