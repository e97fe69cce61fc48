// A logical batch is what training sees; physical batches are what fits. This splits the one into
// the others, and makes them smaller when memory runs out in the middle of it.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <vector>

namespace sotto::memory {

// Whether a smaller part could help: OutOfMemory or std::bad_alloc.
bool out_of_memory(const std::exception& error);

class PhysicalBatches {
 public:
  // Computes items first .. end - 1.
  using Run = std::function<void(std::int64_t first, std::int64_t end)>;
  // After a Run that failed: whether what earlier ones of this batch added is lost with it, so that
  // the batch begins again. If not, the failed Run has added nothing.
  using Lost = std::function<bool()>;

  // At most so many rows at a time, but for items that have more, and a batch in at least so many
  // parts, where it has as many items. Throws std::invalid_argument unless both are positive.
  explicit PhysicalBatches(std::int64_t rows, std::int64_t parts = 1);

  // Runs all items in order, as many at a time as are allowed; an item's rows are never parted.
  // rows_of[k] is the number of rows of item k. When `run` throws OutOfMemory (or std::bad_alloc),
  // rows() becomes half of what it was given, for this batch and later ones, and the same items run
  // again in smaller parts. With a single item, or a single row, there is no half: the exception
  // goes on, as all others do.
  void over(std::span<const std::int64_t> rows_of, const Run& run, const Lost& lost);

  std::int64_t rows() const { return rows_; }
  // Where the parts of these items end if there is memory for all.
  std::vector<std::int64_t> ends(std::span<const std::int64_t> rows_of) const;

 private:
  // What is to come of a batch.
  struct Rest {
    std::int64_t first, rows, parts;
  };
  Rest all(std::span<const std::int64_t> rows_of) const;
  Rest after_next(std::span<const std::int64_t> rows_of, const Rest& rest) const;

  std::int64_t rows_, parts_;
};

}  // namespace sotto::memory
