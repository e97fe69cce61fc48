// Mechanisms: the only way from a clipped sum to a gradient that an optimizer accepts.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/random/secret_random.h"
#include "dp/clipping/clipped_sum.h"
#include "dp/ledger/ledger.h"
#include "dp/noise/bounded_statistics.h"
#include "dp/noise/noise_grid.h"
#include "nn/optim/optimizer.h"

namespace sotto {

class NoisePrefetch;
class NoisyUpdate;
class RoundedGaussian;

// A mean gradient with noise, whose release is in the ledger. Only mechanisms make one.
class NoisyGradient {
 public:
  const Gradients& gradients() const { return gradients_; }
  // The variance of the noise on each element.
  double noise_variance() const { return noise_variance_; }
  // For each clip group about the fraction of units whose norm was within the bound, of the
  // expected number of units; noise may take it out of [0, 1]. Empty unless it was asked for.
  const std::vector<double>& unclipped_fraction() const { return unclipped_fraction_; }
  // The same fraction of units whose gradient was finite; nothing unless the clipper counts them
  // (ClipOptions) and counts were asked for.
  std::optional<double> finite() const { return finite_; }

 private:
  friend class Mechanism;
  NoisyGradient(Gradients gradients, double noise_variance, std::vector<double> unclipped_fraction,
                std::optional<double> finite)
      : gradients_(std::move(gradients)),
        noise_variance_(noise_variance),
        unclipped_fraction_(std::move(unclipped_fraction)),
        finite_(finite) {}
  Gradients gradients_;
  double noise_variance_;
  std::vector<double> unclipped_fraction_;
  std::optional<double> finite_;
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
  // element of every parameter, and divides by the expected (public) batch size. With
  // unclipped_count_stddev > 0, the numbers of units within the clip bounds (and of those with a
  // finite gradient, if the clipper counts them) are released, too, with noise of this standard
  // deviation; the gradient then gets more noise, so that both together are one release with the
  // event's noise multiplier (other_noise_multiplier). Throws, with nothing released, when the
  // ledger cannot be written, when `budget_check` refuses (Ledger::record), when the batch is of
  // another population than the ledger's, and when unclipped_count_stddev is too small for the
  // noise multiplier.
  NoisyGradient release(ClippedSum sum, Ledger& ledger,
                        const Ledger::BudgetCheck& budget_check = {},
                        double unclipped_count_stddev = 0) {
    return release(std::move(sum), ledger, nullptr, budget_check, unclipped_count_stddev);
  }
  // The same, and the optimizer's step with it, in one pass (NoisyUpdate). Throws also what
  // Optimizer::step() throws, before anything is recorded; but should noise make a number infinite,
  // in the middle of the update.
  NoisyGradient update(ClippedSum sum, Ledger& ledger, nn::Optimizer& optimizer,
                       const Ledger::BudgetCheck& budget_check = {},
                       double unclipped_count_stddev = 0) {
    return release(std::move(sum), ledger, &optimizer, budget_check, unclipped_count_stddev);
  }
  // Releases bounded statistics: estimates of their means over the batch, the noisy sums divided by
  // the expected number of units.
  std::vector<double> release(BoundedStatistics statistics, Ledger& ledger,
                              const Ledger::BudgetCheck& budget_check = {});
  // Says that a release is to come, probably like the last one: idle threads may draw its noise
  // until then. Changes nothing of what is released, and does not throw.
  virtual void prefetch() {}
  // The event that a release is accounted as, given the event of its batch (SampledBatch::event,
  // Sampler::event).
  virtual Event event(Event batch) const = 0;
  // A text for the privacy statement.
  virtual std::string description() const = 0;
  // Sets the noise multiplier of the next releases. Throws std::invalid_argument for one that the
  // mechanism cannot have.
  virtual void set_noise_multiplier(double noise_multiplier) = 0;
  // What a checkpoint needs to go on with noise that depends on earlier noise: SECRET. Empty for
  // independent noise. The generator is not part of it.
  virtual std::map<std::string, Tensor> state() const { return {}; }
  // Goes on from a state. Throws std::invalid_argument, with nothing changed, for one that does not
  // fit.
  virtual void load_state(const std::map<std::string, Tensor>& /*state*/) {}

 protected:
  // Called before anything is written to the ledger; throws std::invalid_argument when this sum
  // must not be released now.
  virtual void prepare(const SampledBatch& /*draw*/, const Gradients& /*sums*/,
                       double /*sensitivity*/, const Ledger& /*ledger*/) {}
  // How much noise a sum gets: of standard deviation multiplier * sensitivity, on every element,
  // before the division by `divisor`.
  struct Scale {
    double multiplier = 0, sensitivity = 1, divisor = 1;
  };
  // Throws std::invalid_argument when noise of this scale cannot be drawn for so many elements;
  // called before anything is written to the ledger.
  virtual void check_scale(const Scale& /*scale*/, std::int64_t /*elements*/) const {}
  // Adds noise of this scale to the update's sums, in its pass.
  virtual void add_noise(NoisyUpdate& update, const Scale& scale) = 0;
  // The standard deviation of the noise that the next add_noise() adds to each element, before the
  // division.
  virtual double noise_stddev(const Scale& scale) const = 0;
  // Whether nobody can predict the noise.
  virtual bool secure() const = 0;
  // Whether the noise is independent of that of other releases.
  virtual bool independent() const { return true; }

 private:
  NoisyGradient release(ClippedSum sum, Ledger& ledger, nn::Optimizer* optimizer,
                        const Ledger::BudgetCheck& budget_check, double unclipped_count_stddev);
  void check_independent() const;
  void record(const SampledBatch& draw, Ledger& ledger, const Ledger::BudgetCheck& budget_check);
  std::vector<double> noisy(const std::vector<double>& sums, const Scale& scale);
};

// The way in which normal noise is drawn and added.
enum class GaussianNoise {
  // The sum is rounded to a grid, and noise of whole spacings, exact normals rounded to the grid,
  // is added: the release is a function of the ideal Gaussian mechanism's result for the rounded
  // sum, and the noise is scaled by that sum's slightly larger sensitivity
  // (docs/appendix/proofs-noise.md, "The
  // noise").
  discretized,
  // In double precision. The set of possible values depends on the sum (Mironov 2012): privacy is
  // that of the ideal mechanism except for this effect.
  floating_point,
};

// Adds independent normal noise of standard deviation noise_multiplier * sensitivity (Dwork et al.
// 2006), larger by a factor of up to 1 + 2^-19 when rounded. A rounded release throws
// std::invalid_argument when a sum is NaN or noise_grid() refuses the scale; an infinite sum counts
// as the largest finite one.
class GaussianMechanism final : public Mechanism {
 public:
  // Throws std::invalid_argument unless noise_multiplier is finite and >= 0. A multiplier of 0
  // gives no privacy, and the ledger says so.
  explicit GaussianMechanism(double noise_multiplier, SecretRandom random = SecretRandom(),
                             GaussianNoise noise = GaussianNoise::discretized);
  ~GaussianMechanism() override;

  double noise_multiplier() const { return noise_multiplier_; }
  // Throws as the constructor.
  void set_noise_multiplier(double noise_multiplier) override;
  void prefetch() override;
  Event event(Event batch) const override;
  std::string description() const override;

 protected:
  void add_noise(NoisyUpdate& update, const Scale& scale) override;
  void check_scale(const Scale& scale, std::int64_t elements) const override;
  double noise_stddev(const Scale& scale) const override {
    return scale.multiplier * scale.sensitivity;
  }
  bool secure() const override { return random_.secure(); }

 private:
  void add_rounded(NoisyUpdate& update, const Scale& scale);
  void add_floating_point(NoisyUpdate& update, const Scale& scale);

  double noise_multiplier_ = 0;
  SecretRandom random_;
  GaussianNoise noise_;
  // The last rounded release: its grid, the sampler for it, and, if the release before was on the
  // same grid and the sums were on the CPU, the number of elements of each sum.
  NoiseGrid grid_;
  std::shared_ptr<const RoundedGaussian> sampler_;
  std::vector<std::int64_t> expected_counts_;
  std::unique_ptr<NoisePrefetch> prefetch_;
  std::vector<double> draws_;
};

}  // namespace sotto
