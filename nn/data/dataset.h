// Labelled data held in memory, and the ordinary loader that shuffles it for training without
// privacy. Private training samples its batches with the samplers of dp/sampling instead, whose
// randomness is secret.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace sotto {

// Labelled samples: sample k is inputs[k] with targets[k]. Both tensors are row-major on the CPU
// and have n as axis 0; every call below throws std::invalid_argument if they do not.
//
//   Dataset data{images, labels};
//   const Dataset batch = data.batch(std::vector<std::int64_t>{0, 5, 7});
struct Dataset {
  Tensor inputs;   // [n, ...], any dtype
  Tensor targets;  // [n, ...], usually i64 labels [n]

  // The number of samples, n.
  std::int64_t size() const;
  // Copies the samples with these numbers, in this order, repeats allowed: [rows, ...]. Throws
  // std::invalid_argument for a number outside [0, n).
  Dataset batch(std::span<const std::int64_t> rows) const;
  // Throws std::invalid_argument for a number outside [0, n).
  void check_rows(std::span<const std::int64_t> rows) const;
  // Samples begin, ..., end - 1; shares the storage of this data set.
  Dataset slice(std::int64_t begin, std::int64_t end) const;
};

// Copies rows of the row-major x to `to`, one after the other, on the calling thread.
void copy_rows(const Tensor& x, std::span<const std::int64_t> rows, std::byte* to);

// Yields the batches of ordinary training: each epoch's own permutation of the rows, cut into
// batches. The permutation is a function of (seed, epoch), drawn from public randomness, so that a
// position is all that resuming needs.
class ShuffledBatches {
 public:
  struct Position {
    std::int64_t epoch = 0;
    std::int64_t row = 0;  // rows of the epoch already handed out
    bool operator==(const Position&) const = default;
  };

  // Throws std::invalid_argument unless rows >= 1 and batch >= 1.
  ShuffledBatches(std::int64_t rows, std::int64_t batch, std::uint64_t seed);

  // The next batch of row numbers; the last one of an epoch may be shorter. Never empty.
  std::vector<std::int64_t> next();
  // Returns the batch that next() will return.
  std::vector<std::int64_t> peek();
  // The start of the next batch; after the last batch of an epoch, the start of the next epoch.
  Position position() const { return at_; }
  // Continues from a value of position(). Throws std::invalid_argument where no batch begins.
  void seek(Position position);
  // The number of batches in an epoch.
  std::int64_t batches() const { return (rows_ + batch_ - 1) / batch_; }

 private:
  std::int64_t rows_;
  std::int64_t batch_;
  std::uint64_t seed_;
  Position at_;
  std::int64_t shuffled_ = -1;  // the epoch whose permutation order_ holds
  std::vector<std::int64_t> order_;
};

}  // namespace sotto
