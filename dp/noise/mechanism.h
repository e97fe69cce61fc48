// Mechanisms: the only way from a clipped sum to a gradient that an optimizer accepts.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "dp/ledger/ledger.h"

namespace sotto {
namespace nn {
class Optimizer;
}  // namespace nn
class Ranks;
}  // namespace sotto

namespace sotto {

class BoundedStatistics;
class ClippedSum;
class NoisyUpdate;
class SampledBatch;

// A mean gradient with noise, whose release is in the ledger. Only mechanisms make one.
class NoisyGradient {
 public:
  // Copies share the gradient; a move is a copy, so that none is ever empty.
  NoisyGradient(const NoisyGradient&) = default;
  NoisyGradient& operator=(const NoisyGradient&) = default;
  // The mean gradient of each parameter, with its noise.
  const Gradients& gradients() const;
  // The variance of the noise on each element.
  double noise_variance() const;
  // For each clip group an estimate of the fraction of units whose norm was within the bound,
  // relative to the expected number of units. Noise may move it out of [0, 1]. Empty unless
  // unclipped_count_stddev > 0 was passed to the release.
  const std::vector<double>& unclipped_fraction() const;
  // An estimate of the fraction of units with a finite gradient. nullopt unless the clipper counts
  // them (ClipOptions::count_finite) and unclipped_count_stddev > 0 was passed to the release.
  std::optional<double> finite() const;

 private:
  friend class Mechanism;
  struct Content;
  explicit NoisyGradient(Content content);
  std::shared_ptr<const Content> content_;
};

// Adds calibrated noise to a sum and records the release. Usually the Engine calls it:
//
//   GaussianMechanism mechanism(1.1);
//   const NoisyGradient gradient = mechanism.release(std::move(sum), ledger);
//   optimizer.step(gradient.gradients(), gradient.noise_variance());
class Mechanism {
 public:
  virtual ~Mechanism() = default;
  // Writes the event to the ledger, adds noise in proportion to the sum's sensitivity to every
  // element of every parameter, and divides by the expected (public) batch size. If
  // unclipped_count_stddev > 0, the numbers of units within the clip bounds (and with a finite
  // gradient, if the clipper counts them) are also released, with noise of this standard deviation;
  // the gradient then gets more noise, so that both together are one release with the event's noise
  // multiplier (other_noise_multiplier). Throws, without a release, if the ledger cannot be
  // written, if `budget_check` refuses (Ledger::record), if the batch's population is not the
  // ledger's, and if unclipped_count_stddev is too small for the noise multiplier.
  NoisyGradient release(ClippedSum sum, Ledger& ledger,
                        const Ledger::BudgetCheck& budget_check = {},
                        double unclipped_count_stddev = 0);
  // Makes the release and the optimizer's step in one pass over the parameters (NoisyUpdate). The
  // result holds no gradients where the step used them block by block (drops_gradients).
  // Throws also where Optimizer::step() does, before the release is recorded. One exception: if
  // noise makes a gradient infinite, it throws in the middle of the update, after the release was
  // recorded. With a sum divided among ranks it is collective: each rank updates its own elements
  // and gets the rest from their owners.
  NoisyGradient update(ClippedSum sum, Ledger& ledger, nn::Optimizer& optimizer,
                       const Ledger::BudgetCheck& budget_check = {},
                       double unclipped_count_stddev = 0);
  // Releases bounded statistics. Returns estimates of their means over the batch: the noisy sums
  // divided by the expected number of units.
  std::vector<double> release(BoundedStatistics statistics, Ledger& ledger,
                              const Ledger::BudgetCheck& budget_check = {});
  // Announces a further release, expected to be like the last one, so that idle threads can draw
  // its noise in advance. Does not change any released value, and does not throw.
  virtual void prefetch() {}
  // The event that a release is accounted as, given the event of its batch (SampledBatch::event,
  // Sampler::event).
  virtual Event event(Event batch) const = 0;
  // Returns a description for the privacy statement.
  virtual std::string description() const = 0;
  // Sets the noise multiplier of further releases. Throws std::invalid_argument for a value that
  // the mechanism does not allow.
  virtual void set_noise_multiplier(double noise_multiplier) = 0;
  // The state that a training checkpoint stores for noise that depends on earlier noise: SECRET.
  // Empty for independent noise. It does not contain the generator.
  virtual std::map<std::string, Tensor> state() const { return {}; }
  // Continues from a state. Throws std::invalid_argument, before any change, for a state that does
  // not fit.
  virtual void load_state(const std::map<std::string, Tensor>& /*state*/) {}

 protected:
  // Called before anything is written to the ledger. Throws std::invalid_argument if this sum must
  // not be released now.
  virtual void prepare(const SampledBatch& /*draw*/, const NoisyUpdate& /*update*/,
                       double /*sensitivity*/, const Ledger& /*ledger*/) {}
  // The scale of a sum's noise: its standard deviation on every element is multiplier *
  // sensitivity, before the division by `divisor`.
  struct NoiseScale {
    // Noise multiplier, sensitivity of the sum, and the expected batch size.
    double multiplier = 0, sensitivity = 1, divisor = 1;
  };
  // Called before anything is written to the ledger. Throws std::invalid_argument if noise of this
  // scale cannot be drawn for this many elements.
  virtual void check_scale(const NoiseScale& /*scale*/, std::int64_t /*elements*/) const {}
  // Adds noise of this scale to the update's sums, during the update's pass.
  virtual void add_noise(NoisyUpdate& update, const NoiseScale& scale) = 0;
  // The standard deviation of the noise that the next add_noise() adds to each element before the
  // division.
  virtual double noise_stddev(const NoiseScale& scale) const = 0;
  // True if add_noise() adds noise of this scale to sums on the CPU by NoisyUpdate::on_cpu(), which
  // needs no memory for gradients that only a step reads.
  virtual bool drops_gradients(const NoiseScale& /*scale*/) const { return false; }
  // True if the noise is cryptographically secure, that is, seeded by the operating system.
  virtual bool secure() const = 0;
  // True if the noise is independent of that of other releases.
  virtual bool independent() const { return true; }

 private:
  NoisyGradient release(ClippedSum sum, Ledger& ledger, nn::Optimizer* optimizer,
                        const Ledger::BudgetCheck& budget_check, double unclipped_count_stddev);
  void check_independent() const;
  void record(const SampledBatch& draw, const Ranks& ranks, Ledger& ledger,
              const Ledger::BudgetCheck& budget_check);
  std::vector<double> noisy(const std::vector<double>& sums, const NoiseScale& scale);
};

}  // namespace sotto
