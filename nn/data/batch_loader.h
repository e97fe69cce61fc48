// Batches for a model on any device, prefetched: while one batch is computed, the next is read from
// a mapped file, gathered and copied to a GPU, or made by a source, such as a decoder of files.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "nn/data/dataset.h"

namespace sotto {

// Returns the samples of these rows, in their order, on the CPU. Calls do not overlap, but come
// from other threads.
using BatchSource = std::function<Dataset(std::span<const std::int64_t> rows)>;

// Serves the batches of one training loop, in order, to one thread. Data in memory is not
// prefetched for the CPU, because that would take cores from the training.
//
//   BatchLoader loader(data, device);
//   loader.prefetch(rows);
//   const Dataset batch = loader.batch(rows);
class BatchLoader {
 public:
  // The data must outlive the loader. Throws std::invalid_argument, with the reason, when the
  // device cannot be used.
  BatchLoader(const Dataset& data, Device device);
  // Batches of a source, which a thread calls for the next batch while one is computed.
  BatchLoader(BatchSource source, Device device);
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;
  ~BatchLoader();

  // Announces the rows of the next calls of batch(), in this order and in physical batches, and
  // optionally the rows after them. It affects speed only.
  void prefetch(std::span<const std::int64_t> rows, std::span<const std::int64_t> then = {});
  // Returns Dataset::batch(rows), or the source's batch for them, on the device. If the rows begin
  // or continue the announced ones, it then prefetches the next rows, as many as in the largest
  // physical batch so far, if there is memory. Throws the errors of Dataset::batch() and of the
  // source, and OutOfMemory.
  Dataset batch(std::span<const std::int64_t> rows);
  // The number of batches that had been prefetched: gathered for a GPU, or made by a source.
  std::int64_t hits() const;

 private:
  class Prefetcher;
  class Producer;

  const Dataset* data_ = nullptr;           // null with a source
  std::unique_ptr<Prefetcher> prefetcher_;  // of data for a GPU
  std::unique_ptr<Producer> producer_;      // of a source's batches
};

}  // namespace sotto
