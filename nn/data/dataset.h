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

// A data set in memory: sample k is inputs[k] with targets[k] and element k of each field. All
// tensors are row-major, on the CPU, and have equal sizes along axis 0; otherwise every member
// below throws std::invalid_argument.
//
//   const Dataset data{.inputs = words, .targets = labels, .fields = {{"lengths", lengths}},
//                      .units = authors};
//   const auto [train, test] = data.split(0.8, seed);
struct Dataset {
  Tensor inputs = {};   // [n, ...], any dtype
  Tensor targets = {};  // [n, ...], usually i64 labels [n]
  // Further inputs by name, such as lengths, masks or weights; each [n, ...].
  std::map<std::string, Tensor> fields = {};
  // units[k] is the number of the privacy unit, such as a user, that sample k belongs to. Numbers
  // are arbitrary. Empty: each sample is a unit of its own.
  std::vector<std::int64_t> units = {};

  std::int64_t size() const;
  // The field of this name. Throws std::invalid_argument, listing the names, for an unknown one.
  const Tensor& field(const std::string& name) const;
  // The samples of each unit, in rising order; the units are sorted by their numbers.
  std::vector<std::vector<std::int64_t>> rows_of_units() const;
  // The number of units with a sample: the population of private training (dp/engine/engine.h).
  std::int64_t unit_count() const;

  // Copies the samples with these numbers, in this order, repeats allowed: [rows, ...]. Throws
  // std::invalid_argument for a number outside [0, n).
  Dataset batch(std::span<const std::int64_t> rows) const;
  // Throws std::invalid_argument for a number outside [0, n).
  void check_rows(std::span<const std::int64_t> rows) const;
  // Announces that batch() will copy these samples: those in mapped files (read_table) are read
  // side by side, without waiting, the first 64 MiB of each tensor. This affects speed only;
  // numbers outside [0, n) are skipped.
  void read_ahead(std::span<const std::int64_t> rows) const;
  // Samples begin, ..., end - 1; shares the storage of this data set.
  Dataset slice(std::int64_t begin, std::int64_t end) const;
  // Divides the data set into two copies without a common unit: the first has all samples of
  // round(fraction * units) randomly drawn units, the second those of the other units. Samples keep
  // their order. The draw is public and depends on the seed and the number of units only. Throws
  // std::invalid_argument unless 0 <= fraction <= 1.
  std::pair<Dataset, Dataset> split(double fraction, std::uint64_t seed) const;
  // A copy in random order, which depends on the seed and n only.
  Dataset shuffle(std::uint64_t seed) const;
  // Applies f to each tensor, in this order: the fields by name, the targets, the inputs. The
  // result has no units.
  Dataset map(const std::function<Tensor(const Tensor&)>& f) const;
  // A hash of all samples and their units; not cryptographic.
  std::uint64_t hash(std::uint64_t seed = 0) const;
  // The units of the given samples; empty if `units` is.
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
    std::int64_t epoch = 0;  // from 0
    std::int64_t row = 0;    // rows of the epoch already handed out
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
