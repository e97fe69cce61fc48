// Batches of a fixed, public number of units: sampled at random, or by a public plan.
#pragma once

#include "core/random/secret_random.h"
#include "dp/sampling/sampler.h"
#include "dp/sampling/subset.h"

namespace sotto {

// Every subset of `size` units has the same probability, without replacement, independently of
// other draws.
class FixedSizeSampler final : public Sampler {
 public:
  // Throws std::invalid_argument unless 1 <= size <= population <= 2^53.
  FixedSizeSampler(std::int64_t population, std::int64_t size)
      : FixedSizeSampler(population, size, SecretRandom()) {}
  FixedSizeSampler(std::int64_t population, std::int64_t size, SecretRandom random);

  double expected_batch_size() const override { return static_cast<double>(size_); }

 protected:
  std::vector<std::int64_t> sample(std::int64_t /*index_in_epoch*/) override {
    return uniform_subset(population(), size_, random_);
  }
  bool secure() const override { return random_.secure(); }

 private:
  std::int64_t size_;
  SecretRandom random_;
};

// A public plan of `steps` draws, for noise that is correlated over them: draw t has units (t mod
// b) batch, ..., (t mod b) batch + batch - 1, where b = floor(population / batch). Each unit takes
// part in every b-th draw (a fixed epoch order, as after shuffling once and dropping the
// remainder); the last population - b batch units never do. The whole plan is one epoch.
class PlannedSampler final : public Sampler {
 public:
  // Throws std::invalid_argument unless 1 <= batch <= population and steps >= 1.
  PlannedSampler(std::int64_t population, std::int64_t batch, std::int64_t steps);

  double expected_batch_size() const override { return static_cast<double>(batch_); }
  std::int64_t min_separation() const override { return population() / batch_; }

 protected:
  std::vector<std::int64_t> sample(std::int64_t index_in_epoch) override;
  bool secure() const override { return true; }  // there is no randomness
  // The noise ends with the plan.
  bool repeats() const override { return false; }

 private:
  std::int64_t batch_;
};

}  // namespace sotto
