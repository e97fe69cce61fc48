// Labelled data held in memory, and the ordinary loader that shuffles it for training without
// privacy. Private training draws its batches with the secret samplers of dp instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace sotto {

// Sample k is inputs[k] with targets[k]. Both tensors are row-major on the CPU and agree in
// axis 0; every call below throws std::invalid_argument where they do not.
struct Dataset {
  Tensor inputs;   // [n, ...], any dtype
  Tensor targets;  // [n, ...], i64 labels [n] as a rule

  // The number of samples, n.
  std::int64_t size() const;
  // Copies of the given samples, in that order, repeats allowed: [rows, ...]. Throws
  // std::invalid_argument for a row outside [0, n).
  Dataset batch(std::span<const std::int64_t> rows) const;
  // Throws as batch() does.
  void check_rows(std::span<const std::int64_t> rows) const;
  // The samples begin, ..., end - 1; shares the storage of this data set.
  Dataset slice(std::int64_t begin, std::int64_t end) const;
};

// Writes rows of the row-major x one after the other, on the calling thread.
void copy_rows(const Tensor& x, std::span<const std::int64_t> rows, std::byte* to);

// Cuts every epoch's own permutation of the rows into batches. The permutation is a function of
// (seed, epoch), drawn from public randomness, so a position is all that resuming needs.
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
  // What next() will give.
  std::vector<std::int64_t> peek();
  // Where the next batch begins. At the end of an epoch it is the start of the one after.
  Position position() const { return at_; }
  // Continues from a position that position() gave. Throws std::invalid_argument where no batch
  // begins.
  void seek(Position position);
  // Batches in an epoch.
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
