// Batches of a data set for a model on any device, read ahead for GPUs: while one is computed, the
// next is gathered into pinned memory by a thread of its own, and copied beside the computation.
#pragma once

#include <deque>
#include <future>

#include "core/cuda/upload.h"
#include "nn/data/dataset.h"

namespace sotto {

// For a loop's batches, one after the other, of one thread. On the CPU nothing is read ahead: the
// cores that would do it are computing.
class BatchLoader {
 public:
  // The data must outlive it. Throws std::invalid_argument, with the reason, when the device cannot
  // be used.
  BatchLoader(const Dataset& data, Device device);
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // The rows that batch() will be asked for from now on, in parts, in this order; and, in case it
  // is known, what will be expected after them. Nothing depends on it but the time that is taken.
  void expect(std::span<const std::int64_t> rows, std::span<const std::int64_t> then = {});
  // Dataset::batch() on the device. When the rows begin what is expected, or go on with it, as many
  // are read ahead after them as in the largest part so far, where there is memory. Throws as
  // Dataset::batch(), and OutOfMemory.
  Dataset batch(std::span<const std::int64_t> rows);
  // How many batches had been read ahead.
  std::int64_t hits() const { return hits_; }

 private:
  struct Slot {
    explicit Slot(Device device) : inputs(device), targets(device) {}
    std::vector<std::int64_t> rows;
    Upload inputs, targets;
    std::future<void> gathered;  // the last member: it ends before what it writes to
  };

  void start(std::span<const std::int64_t> rows, std::launch how);
  void gather(Slot& slot) const;
  std::span<const std::int64_t> expected_after(std::span<const std::int64_t> rows);

  const Dataset& data_;
  std::deque<Slot> slots_;  // two, in turn; none on the CPU
  std::size_t turn_ = 0;    // the slot of the next batch
  bool ahead_ = false;      // which is being read ahead
  std::vector<std::int64_t> rows_, then_;
  std::size_t begin_ = 0, at_ = 0;  // of the last part, and behind it
  std::size_t largest_ = 0;         // part so far
  std::int64_t hits_ = 0;
};

}  // namespace sotto
