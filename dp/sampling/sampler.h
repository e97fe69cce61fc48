// Sampling of the batches of private training. A batch carries the rate it was sampled with, so
// that the accountant gets no other.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dp/event.h"

namespace sotto {

// Size and hash of a set of units, by which ranks compare sets without sending them.
struct UnitDigest {
  std::int64_t units = 0;  // their number
  std::uint64_t hash = 0;  // the sum of their hashes, modulo 2^64

  // Makes this the digest of the union with a disjoint set.
  UnitDigest& operator+=(const UnitDigest& other);
  bool operator==(const UnitDigest&) const = default;
};
UnitDigest digest_of(std::span<const std::int64_t> units);  // in any order

// One logical batch, as a sampler drew it. Only samplers make it, and it can be moved and used up
// but not copied.
class SampledBatch {
 public:
  SampledBatch(SampledBatch&&) = default;
  SampledBatch& operator=(SampledBatch&&) = default;

  // The privacy units that take part, in increasing order; may be empty. On a rank other than 0,
  // the units that this rank computes.
  std::span<const std::int64_t> units() const { return units_; }
  // The number of all units that take part, on every rank.
  std::int64_t size() const { return whole_ ? whole_->units : std::ssize(units_); }
  UnitDigest digest() const { return whole_ ? *whole_ : digest_of(units_); }
  // The event that a release of this batch is accounted as, with a noise multiplier of 0.
  const Event& event() const { return event_; }
  // Two draws with one unit in both are at least this many apart; 1: no guarantee.
  std::int64_t min_separation() const { return min_separation_; }
  // The mean number of units in a draw of the epoch, not rounded. Public.
  double expected_batch_size() const { return expected_size_; }
  // The data set's number of units, to which the rate refers: a ledger accepts one population only.
  std::int64_t population() const { return population_; }
  // The draw's number, by which a ledger refuses to release a batch twice.
  std::uint64_t number() const { return number_; }
  // The batch's index in its epoch, from 0.
  std::int64_t index_in_epoch() const { return index_in_epoch_; }
  // The number of the draw that began the epoch.
  std::uint64_t epoch_began() const { return epoch_began_; }
  // A random number of the epoch's assignment of units to batches, by which a ledger refuses
  // batches of another one; 0 for epochs of one batch.
  std::uint64_t epoch_id() const { return epoch_id_; }
  // Returns whether the batch was drawn with unpredictable randomness.
  bool secure() const { return secure_; }

 private:
  friend class Sampler;
  SampledBatch() = default;
  std::vector<std::int64_t> units_;
  Event event_;
  std::int64_t min_separation_ = 1;
  double expected_size_ = 0;
  std::int64_t population_ = 0;
  std::uint64_t number_ = 0;
  std::int64_t index_in_epoch_ = 0;
  std::uint64_t epoch_began_ = 0;
  std::uint64_t epoch_id_ = 0;
  bool secure_ = false;
  std::optional<UnitDigest> whole_;  // of the whole batch, if units_ is one rank's part
};

// A sampler's state for a training checkpoint. It is as SECRET as the batches: `rest` reveals
// the units of batches to come. It does not contain the generator.
struct SamplerState {
  Event event;                      // of the next draw
  std::int64_t population = 0;      // number of units
  double expected_batch_size = 0;   // as Sampler::expected_batch_size()
  bool secure = false;              // SampledBatch::secure() of its draws
  std::int64_t index_in_epoch = 0;  // batches of the epoch already drawn
  std::uint64_t epoch_began = 0;    // number of the draw that began the epoch
  std::uint64_t epoch_id = 0;       // SampledBatch::epoch_id() of its batches
  std::uint64_t number = 0;         // of the next draw
  // remaining assignment of an epoch that is drawn at its start (EpochSampler)
  std::vector<std::int64_t> rest;
};

// Draws the batches of private training. make_sampler() makes one from a batch size; the Engine
// owns one and draws from it.
//
//   PoissonSampler sampler(population, 0.01);
//   const SampledBatch batch = sampler.draw();
class Sampler {
 public:
  // `first` is the event of the first draw, without a noise multiplier. Throws
  // std::invalid_argument unless population >= 1 and the event is valid.
  Sampler(std::int64_t population, const Event& first);
  virtual ~Sampler() = default;

  // Draws the next batch. Throws std::invalid_argument when no further epoch exists (the end of a
  // plan).
  SampledBatch draw();
  // The event of the next draw, with a noise multiplier of 0.
  const Event& event() const { return event_; }
  // The way in which batches are drawn.
  Sampling sampling() const { return event_.sampling; }
  // The exact probability with which a unit takes part, if the sampling has one; rounded up if a
  // double does not hold it.
  double rate() const { return event_.sampling_rate; }
  // The number of units in the data set.
  std::int64_t population() const { return population_; }
  // The mean number of units in a batch, by which noisy sums are divided. Public.
  virtual double expected_batch_size() const { return rate() * static_cast<double>(population_); }
  // Two draws in which one unit takes part are at least this many apart; 1: no guarantee.
  virtual std::int64_t min_separation() const { return 1; }
  // The number of batches of the epoch already drawn.
  std::int64_t index_in_epoch() const { return index_in_epoch_; }
  // Sets the next draw's number and begins a new epoch: a resumed run continues where its ledger
  // stopped.
  void resume_from(std::uint64_t number);

  // The state for a training checkpoint; SECRET.
  SamplerState state() const;
  // Continues from a state, also within an epoch, with its draw numbers. The ledger refuses batches
  // that were released since, and the rest of an epoch that would be drawn again. Throws
  // std::invalid_argument, before any change, unless the state is possible, of a sampler like this
  // one, and secure if this one is.
  void load_state(const SamplerState& state);

 protected:
  // The units of the next draw, in increasing order. `index_in_epoch` counts the batches
  // of an epoch from 0.
  virtual std::vector<std::int64_t> sample(std::int64_t index_in_epoch) = 0;
  // Returns whether batches are drawn with unpredictable randomness.
  virtual bool secure() const = 0;
  // Returns whether another epoch follows the first.
  virtual bool repeats() const { return true; }
  // The remaining assignment, after `index_in_epoch` batches, of an epoch that is drawn at its
  // start; load_rest() restores it after checking all of it.
  virtual std::vector<std::int64_t> rest(std::int64_t /*index_in_epoch*/) const { return {}; }
  // Throws std::invalid_argument, before any change, for an assignment that rest() never returns.
  virtual void load_rest(std::int64_t index_in_epoch, const std::vector<std::int64_t>& rest);
  // The digest of all units of the draw, where sample() has given one rank's.
  virtual std::optional<UnitDigest> whole_digest() const { return std::nullopt; }

 private:
  void seek(std::int64_t index_in_epoch, std::uint64_t number);

  std::int64_t population_;
  Event event_;
  std::int64_t index_in_epoch_ = 0;  // up to event_.batches, where the epoch is over
  std::uint64_t epoch_began_ = 0;
  std::uint64_t epoch_id_ = 0;
  std::uint64_t number_ = 0;
};

// Every unit takes part in every batch.
class FullBatchSampler final : public Sampler {
 public:
  // Throws std::invalid_argument unless population >= 1.
  explicit FullBatchSampler(std::int64_t population)
      : Sampler(population, {.sampling = Sampling::full_batch}) {}

 protected:
  std::vector<std::int64_t> sample(std::int64_t index_in_epoch) override;
  bool secure() const override { return true; }  // there is no randomness
};

}  // namespace sotto
