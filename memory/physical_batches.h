// Splits a logical batch, which is the unit of training, into physical batches, which fit into
// memory, and makes these smaller when memory runs out.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <vector>

namespace sotto::memory {

// Returns whether a smaller physical batch could help: for OutOfMemory and std::bad_alloc.
bool out_of_memory(const std::exception& error);

// The loop over the physical batches of a logical batch. An item is the smallest piece that cannot
// be split: a row, or all rows of a privacy unit.
class PhysicalBatches {
 public:
  // Computes items first .. end - 1.
  using Run = std::function<void(std::int64_t first, std::int64_t end)>;
  // Called after a failed Run: returns whether the results of this batch's earlier Runs are lost,
  // too, so that the batch must restart. If not, the failed Run has added nothing.
  using Lost = std::function<bool()>;

  // At most `rows` rows in each physical batch, unless a single item has more, and at least `parts`
  // physical batches, if there are as many items. Throws std::invalid_argument unless both are
  // positive.
  explicit PhysicalBatches(std::int64_t rows, std::int64_t parts = 1);

  // Runs all items in order, as many at a time as are allowed. rows_of[k] is the number of rows of
  // item k, which stay together. If `run` throws OutOfMemory (or std::bad_alloc), rows() becomes
  // half of that Run's rows, for this batch and later ones, and the items run again in smaller
  // physical batches. A single item or a single row cannot be halved; its exception propagates, as
  // any other exception does. Items of different kinds are never in one physical batch; kinds[k] is
  // that of item k, and `kinds` is empty if all are alike.
  void over(std::span<const std::int64_t> rows_of, const Run& run, const Lost& lost,
            std::span<const std::int64_t> kinds = {});

  std::int64_t rows() const { return rows_; }
  // The ends of these items' physical batches if there is memory for all.
  std::vector<std::int64_t> ends(std::span<const std::int64_t> rows_of,
                                 std::span<const std::int64_t> kinds = {}) const;

 private:
  std::int64_t rows_, parts_;
};

}  // namespace sotto::memory
