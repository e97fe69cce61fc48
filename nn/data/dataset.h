// Labelled data held in memory, and the ordinary loader that shuffles it for training without
// privacy. Private training samples its batches with the samplers of dp/sampling instead, whose
// randomness is secret.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace sotto {

// Sample k is inputs[k] with targets[k], and with element k of each field. All tensors are
// row-major on the CPU and agree in axis 0; every call below throws std::invalid_argument where
// they do not:
//   const Dataset data{.inputs = words, .targets = labels, .fields = {{"lengths", lengths}},
//                      .units = authors};
//   const auto [train, test] = data.split(0.8, seed);
struct Dataset {
  Tensor inputs = {};   // [n, ...], any dtype
  Tensor targets = {};  // [n, ...], usually i64 labels [n]
  // What else belongs to a sample, by name: lengths, masks, weights; each [n, ...].
  std::map<std::string, Tensor> fields = {};
  // Whose sample k is: the number of a unit of privacy, a user for instance; any numbers, in any
  // order. Where it is empty each sample is a unit of its own.
  std::vector<std::int64_t> units = {};

  // The number of samples, n.
  std::int64_t size() const;
  // Throws std::invalid_argument, with the names that there are, for another one.
  const Tensor& field(const std::string& name) const;
  // The samples of each unit, in rising order; units by rising number.
  std::vector<std::vector<std::int64_t>> rows_of_units() const;
  // How many units have a sample: the population of a private training (dp/engine/engine.h).
  std::int64_t unit_count() const;

  // Copies the samples with these numbers, in this order, repeats allowed: [rows, ...]. Throws
  // std::invalid_argument for a number outside [0, n).
  Dataset batch(std::span<const std::int64_t> rows) const;
  // Throws std::invalid_argument for a number outside [0, n).
  void check_rows(std::span<const std::int64_t> rows) const;
  // Samples begin, ..., end - 1; shares the storage of this data set.
  Dataset slice(std::int64_t begin, std::int64_t end) const;
  // Two parts without a sample in common, copies: round(fraction units) units drawn at random, with
  // all samples of theirs, and the others; samples keep their order. The draw is public, a function
  // of the seed and the number of units alone. Throws std::invalid_argument unless
  // 0 <= fraction <= 1.
  std::pair<Dataset, Dataset> split(double fraction, std::uint64_t seed) const;
  // A copy in another order, a function of the seed and n alone.
  Dataset shuffle(std::uint64_t seed) const;
  // f of each tensor, without units: the fields by name, the targets, the inputs, in this order.
  Dataset map(const std::function<Tensor(const Tensor&)>& f) const;
  // The units of the given samples; empty where each sample is a unit of its own.
  std::vector<std::int64_t> units_of(std::span<const std::int64_t> rows) const;
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
