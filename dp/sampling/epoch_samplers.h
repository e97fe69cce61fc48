// Samplers that assign every unit to one batch of an epoch, with a new secret assignment for each
// epoch.
#pragma once

#include "core/random/secret_random.h"
#include "dp/sampling/sampler.h"

namespace sotto {

// The base of samplers by epoch. Their rest() is, for each unit, the batch of this epoch (from 0)
// in which it has yet to take part, or -1; empty before and after an epoch.
class EpochSampler : public Sampler {
 public:
  // population / batches: the mean over the epoch.
  double expected_batch_size() const override;

 protected:
  // An epoch has the event's number of batches.
  EpochSampler(std::int64_t population, const Event& first, SecretRandom random);

  // Draws the batch of every unit.
  virtual std::vector<std::int64_t> assign(SecretRandom& random) const = 0;
  // The number of units that a batch must have; -1 if it is random.
  virtual std::int64_t size(std::int64_t batch) const = 0;

  std::vector<std::int64_t> sample(std::int64_t index_in_epoch) override;
  bool secure() const override { return random_.secure(); }
  std::vector<std::int64_t> rest(std::int64_t index_in_epoch) const override;
  void load_rest(std::int64_t index_in_epoch, const std::vector<std::int64_t>& rest) override;

 private:
  SecretRandom random_;
  std::vector<std::int64_t> order_;  // batch by batch, in increasing order within each
  std::vector<std::int64_t> start_;  // of each batch in order_, and the end of the last one
};

// An epoch is a uniform random order of the units, cut into ceil(population / batch) batches whose
// sizes differ by at most one.
class PartitionSampler final : public EpochSampler {
 public:
  // Throws std::invalid_argument unless 1 <= batch <= population.
  PartitionSampler(std::int64_t population, std::int64_t batch)
      : PartitionSampler(population, batch, SecretRandom()) {}
  PartitionSampler(std::int64_t population, std::int64_t batch, SecretRandom random);

 protected:
  std::vector<std::int64_t> assign(SecretRandom& random) const override;
  std::int64_t size(std::int64_t batch) const override;
};

// In each epoch every unit goes to one of `batches` batches, uniformly and independently of other
// units (balls and bins; Chua et al. 2024).
class BallsAndBinsSampler final : public EpochSampler {
 public:
  // Throws std::invalid_argument unless 1 <= batches <= population.
  BallsAndBinsSampler(std::int64_t population, std::int64_t batches)
      : BallsAndBinsSampler(population, batches, SecretRandom()) {}
  BallsAndBinsSampler(std::int64_t population, std::int64_t batches, SecretRandom random);

 protected:
  std::vector<std::int64_t> assign(SecretRandom& random) const override;
  std::int64_t size(std::int64_t /*batch*/) const override { return -1; }
};

}  // namespace sotto
