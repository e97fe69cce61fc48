// Batches of a data set for a model on any device, prefetched for GPUs: while one batch is
// computed, a thread gathers the next into pinned memory and copies it to the GPU at the same time.
#pragma once

#include <memory>
#include <span>

#include "nn/data/dataset.h"

namespace sotto {

// Serves the batches of one training loop, in order, to one thread. On the CPU nothing is
// prefetched: prefetching would use the cores that compute.
//
//   BatchLoader loader(data, device);
//   loader.prefetch(rows);
//   const Dataset batch = loader.batch(rows);
class BatchLoader {
 public:
  // The data must outlive the loader. Throws std::invalid_argument, with the reason, when the
  // device cannot be used.
  BatchLoader(const Dataset& data, Device device);
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;
  ~BatchLoader();

  // Announces the rows that batch() will be asked for from now on, in this order and in physical
  // batches, and optionally the rows after them. The announcement affects speed only.
  void prefetch(std::span<const std::int64_t> rows, std::span<const std::int64_t> then = {});
  // Returns Dataset::batch(rows) on the device. If the rows begin or continue those announced, the
  // next ones are prefetched, as many as in the largest physical batch so far, if there is memory.
  // Throws the errors of Dataset::batch(), and OutOfMemory.
  Dataset batch(std::span<const std::int64_t> rows);
  // The number of batches that had been prefetched.
  std::int64_t hits() const;

 private:
  class Prefetcher;

  const Dataset& data_;
  std::unique_ptr<Prefetcher> prefetcher_;  // null on the CPU
};

}  // namespace sotto
