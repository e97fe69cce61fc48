// Drawing the batches of private training. The rate that a batch was drawn with travels with it, so
// that the accountant cannot be told another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dp/event.h"
#include "dp/sampling/subset.h"

namespace sotto {

// One logical batch, as a sampler drew it. Only samplers make draws, and a draw can be moved and
// used up but not copied.
class SampledBatch {
 public:
  SampledBatch(SampledBatch&&) = default;
  SampledBatch& operator=(SampledBatch&&) = default;

  // The units of privacy that take part, in rising order; may be empty.
  std::span<const std::int64_t> units() const { return units_; }
  // What a release of this batch is accounted as, but for the noise multiplier, which is 0 here.
  const Event& event() const { return event_; }
  // At least so many draws lie between two in which one unit takes part; 1 where none are promised.
  std::int64_t separation() const { return separation_; }
  // The mean number of units in a draw of the pass, not rounded. Public.
  double expected_batch_size() const { return expected_size_; }
  // The number of units that the rate is of: a ledger takes batches of one population alone.
  std::int64_t population() const { return population_; }
  std::uint64_t number() const { return number_; }
  // Where it is in its pass, from 0, and the number of the draw that began the pass.
  std::int64_t place() const { return place_; }
  std::uint64_t pass() const { return pass_; }
  // Drawn with randomness that nobody can predict.
  bool secure() const { return secure_; }
  // Consecutive parts of at most `limit` units; one empty part when there are none.
  std::vector<std::span<const std::int64_t>> parts(std::int64_t limit) const;

 private:
  friend class Sampler;
  SampledBatch() = default;
  std::vector<std::int64_t> units_;
  Event event_;
  std::int64_t separation_ = 1;
  double expected_size_ = 0;
  std::int64_t population_ = 0;
  std::uint64_t number_ = 0;
  std::int64_t place_ = 0;
  std::uint64_t pass_ = 0;
  bool secure_ = false;
};

// Where a sampler stands, for a checkpoint. As secret as the batches: `rest` says who is in those
// to come. No generator is part of it.
struct SamplerState {
  Event event;  // of the next draw
  std::int64_t population = 0;
  double expected_batch_size = 0;
  bool secure = false;             // SampledBatch::secure() of its draws
  std::int64_t place = 0;          // batches drawn of the pass
  std::uint64_t pass = 0;          // number of the draw that began the pass
  std::uint64_t number = 0;        // of the next draw
  std::vector<std::int64_t> rest;  // of a pass that is drawn at its start, as its sampler says
};

class Sampler {
 public:
  // `first` is the event of the first draw, without a noise multiplier. Throws
  // std::invalid_argument unless population >= 1 and the event is possible.
  Sampler(std::int64_t population, const Event& first);
  virtual ~Sampler() = default;

  // Throws std::invalid_argument when there is no further pass (a plan that came to its end).
  SampledBatch draw();
  // Of the next draw, with a noise multiplier of 0.
  const Event& event() const { return event_; }
  Sampling sampling() const { return event_.sampling; }
  // Exactly the probability with which a unit takes part, where the sampling has one; rounded up
  // where a double does not hold it.
  double rate() const { return event_.sampling_rate; }
  std::int64_t population() const { return population_; }
  virtual double expected_batch_size() const { return rate() * static_cast<double>(population_); }
  virtual std::int64_t separation() const { return 1; }
  // Batches drawn of the pass.
  std::int64_t place() const { return place_; }
  // The next draw's number: a resumed run goes on where its ledger stopped, and with a new pass.
  void resume_from(std::uint64_t number);

  SamplerState state() const;
  // Goes on where that state was taken, also within a pass, with the same numbers: a ledger refuses
  // batches that were released since. Throws std::invalid_argument, with nothing changed, unless
  // the state is possible and of a sampler like this one, and secure where this one is.
  void load_state(const SamplerState& state);

 protected:
  // The units of the next draw, in rising order. `place` counts the batches of a pass from 0.
  virtual std::vector<std::int64_t> choose(std::int64_t place) = 0;
  virtual bool secure() const = 0;
  // Whether another pass follows the first.
  virtual bool repeats() const { return true; }
  // What is left, after `place` batches, of a pass that is drawn at its start; and back, after a
  // check of all of it.
  virtual std::vector<std::int64_t> rest(std::int64_t /*place*/) const { return {}; }
  virtual void load_rest(std::int64_t place, const std::vector<std::int64_t>& rest);

 private:
  void seek(std::int64_t place, std::uint64_t number);

  std::int64_t population_;
  Event event_;
  std::int64_t place_ = 0;  // up to and including event_.batches, where a pass is over
  std::uint64_t pass_ = 0;
  std::uint64_t number_ = 0;
};

// Every unit takes part with the same probability, independently of all others and of other draws.
// The probability is a multiple of 2^-64 and is known exactly: rate() is that multiple, rounded up
// to a double. At small rates the work is in proportion to the units drawn.
class PoissonSampler final : public Sampler {
 public:
  // Throws std::invalid_argument unless 0 < rate <= 1.
  PoissonSampler(std::int64_t population, double rate, SecretRandom random = SecretRandom());

 protected:
  std::vector<std::int64_t> choose(std::int64_t /*place*/) override {
    return subset_.draw(population(), random_);
  }
  bool secure() const override { return random_.secure(); }

 private:
  IndependentSubset subset_;
  SecretRandom random_;
};

// Everybody, each time.
class FullBatchSampler final : public Sampler {
 public:
  explicit FullBatchSampler(std::int64_t population)
      : Sampler(population, {.sampling = Sampling::full_batch}) {}

 protected:
  std::vector<std::int64_t> choose(std::int64_t place) override;
  bool secure() const override { return true; }  // nothing is drawn
};

}  // namespace sotto
