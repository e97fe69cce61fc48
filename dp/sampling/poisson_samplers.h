// Poisson sampling: of all units, with a maximum batch size, and within groups that take turns.
#pragma once

#include "core/random/secret_random.h"
#include "dp/sampling/sampler.h"
#include "dp/sampling/subset.h"

namespace sotto {

// Every unit takes part with the same probability, independently of other units and other draws.
// The probability is a multiple of 2^-64 and known exactly; rate() is that multiple, rounded up to
// a double. At small rates the work is proportional to the number of units drawn.
class PoissonSampler final : public Sampler {
 public:
  // Throws std::invalid_argument unless 0 < rate <= 1.
  PoissonSampler(std::int64_t population, double rate)
      : PoissonSampler(population, rate, SecretRandom()) {}
  PoissonSampler(std::int64_t population, double rate, SecretRandom random);

 protected:
  std::vector<std::int64_t> sample(std::int64_t /*index_in_epoch*/) override {
    return subset_.draw(population(), random_);
  }
  bool secure() const override { return random_.secure(); }

 private:
  IndependentSubset subset_;
  SecretRandom random_;
};

// A Poisson batch, truncated to a uniform subset of `max_batch_size` units if it has more, so that
// physical batches of a fixed shape hold it. The event's truncation_probability also holds
// for a population larger by one unit (Ganesh 2025).
class TruncatedPoissonSampler final : public Sampler {
 public:
  // Throws std::invalid_argument unless 0 < rate <= 1 and max_batch_size >= 1.
  TruncatedPoissonSampler(std::int64_t population, double rate, std::int64_t max_batch_size)
      : TruncatedPoissonSampler(population, rate, max_batch_size, SecretRandom()) {}
  TruncatedPoissonSampler(std::int64_t population, double rate, std::int64_t max_batch_size,
                          SecretRandom random);

  // The most units that a batch has.
  std::int64_t max_batch_size() const { return max_batch_size_; }
  // The mean size of the batches before truncation, but at most `max_batch_size`.
  double expected_batch_size() const override;

 protected:
  std::vector<std::int64_t> sample(std::int64_t index_in_epoch) override;
  bool secure() const override { return random_.secure(); }

 private:
  std::int64_t max_batch_size_;
  IndependentSubset subset_;
  SecretRandom random_;
};

// Unit u belongs to group u mod groups. The groups take turns, and in its turn every unit of a
// group takes part with the same probability, independently (Choquette-Choo et al. 2023,
// "(Amplified) banded matrix factorization"). An epoch is one turn of each group.
class CyclicPoissonSampler final : public Sampler {
 public:
  // `rate` is the probability of a unit in its group's turn. Throws std::invalid_argument unless 0
  // < rate <= 1 and 1 <= groups <= population.
  CyclicPoissonSampler(std::int64_t population, std::int64_t groups, double rate)
      : CyclicPoissonSampler(population, groups, rate, SecretRandom()) {}
  CyclicPoissonSampler(std::int64_t population, std::int64_t groups, double rate,
                       SecretRandom random);

  // The number of groups, and of batches in an epoch.
  std::int64_t groups() const { return event().batches; }
  // The mean number of units in a turn of a group.
  double expected_batch_size() const override {
    return Sampler::expected_batch_size() / static_cast<double>(groups());
  }
  // Holds until resume_from() starts a new epoch.
  std::int64_t min_separation() const override { return groups(); }

 protected:
  std::vector<std::int64_t> sample(std::int64_t index_in_epoch) override;
  bool secure() const override { return random_.secure(); }

 private:
  IndependentSubset subset_;
  SecretRandom random_;
};

}  // namespace sotto
