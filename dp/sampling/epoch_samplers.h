// Samplers that assign every unit to one batch of a pass, anew and in secret for each pass.
#pragma once

#include "dp/sampling/sampler.h"

namespace sotto {

// The rest() of such a sampler is, for each unit, the batch of this pass (from 0) that it is still
// to take part in, or -1; empty before and after a pass.
class PassSampler : public Sampler {
 public:
  // population / batches: a mean over the pass.
  double expected_batch_size() const override;

 protected:
  // A pass of the event's batches.
  PassSampler(std::int64_t population, const Event& first, SecretRandom random);

  // The batch of every unit.
  virtual std::vector<std::int64_t> assign(SecretRandom& random) const = 0;
  // How many units a batch must have; -1 where that is left to chance.
  virtual std::int64_t size(std::int64_t batch) const = 0;

  std::vector<std::int64_t> choose(std::int64_t place) override;
  bool secure() const override { return random_.secure(); }
  std::vector<std::int64_t> rest(std::int64_t place) const override;
  void load_rest(std::int64_t place, const std::vector<std::int64_t>& rest) override;

 private:
  SecretRandom random_;
  std::vector<std::int64_t> order_;  // batch by batch, in rising order within each
  std::vector<std::int64_t> start_;  // of each batch in order_, and where the last one ends
};

// A pass is a uniform random order cut into ceil(population / batch) batches, whose sizes differ by
// at most one.
class PartitionSampler final : public PassSampler {
 public:
  // Throws std::invalid_argument unless 1 <= batch <= population.
  PartitionSampler(std::int64_t population, std::int64_t batch,
                   SecretRandom random = SecretRandom());

 protected:
  std::vector<std::int64_t> assign(SecretRandom& random) const override;
  std::int64_t size(std::int64_t batch) const override;
};

// In each pass every unit goes to one of `batches` batches, all with the same probability and
// independently of other units (balls and bins; Chua et al. 2024).
class BallsAndBinsSampler final : public PassSampler {
 public:
  // Throws std::invalid_argument unless 1 <= batches <= population.
  BallsAndBinsSampler(std::int64_t population, std::int64_t batches,
                      SecretRandom random = SecretRandom());

 protected:
  std::vector<std::int64_t> assign(SecretRandom& random) const override;
  std::int64_t size(std::int64_t /*batch*/) const override { return -1; }
};

}  // namespace sotto
