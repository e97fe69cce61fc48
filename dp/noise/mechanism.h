// Mechanisms: the only way from a clipped sum to something an optimizer takes.
#pragma once

#include <optional>
#include <string>

#include "core/random/rounded_gaussian.h"
#include "core/random/secret_random.h"
#include "dp/clipping/clipper.h"
#include "dp/ledger/ledger.h"
#include "dp/noise/bounded_statistics.h"
#include "dp/noise/noise_grid.h"
#include "dp/noise/noise_prefetch.h"
#include "nn/optim/optimizer.h"

namespace sotto {

// A mean gradient with noise on it, whose release is in the ledger. Only mechanisms make one.
class NoisyGradient {
 public:
  const Gradients& gradients() const { return gradients_; }
  // Of the noise on each element.
  double noise_variance() const { return noise_variance_; }
  // For each clip group about the part of the units whose norm was within the bound, of the
  // expected number of them; noise may take it out of [0, 1]. Empty unless it was asked for.
  const std::vector<double>& unclipped_fraction() const { return within_bound_; }
  // The same part of the units whose gradient was finite; nothing unless the clipper counts them
  // (ClipOptions) and counts were asked for.
  std::optional<double> finite() const { return finite_; }

 private:
  friend class Mechanism;
  NoisyGradient(Gradients gradients, double noise_variance, std::vector<double> unclipped_fraction,
                std::optional<double> finite)
      : gradients_(std::move(gradients)),
        noise_variance_(noise_variance),
        within_bound_(std::move(unclipped_fraction)),
        finite_(finite) {}
  Gradients gradients_;
  double noise_variance_;
  std::vector<double> within_bound_;
  std::optional<double> finite_;
};

class Mechanism {
 public:
  virtual ~Mechanism() = default;
  // Writes the event to the ledger, then adds noise in proportion to the sum's sensitivity to every
  // element of every parameter, and divides by the expected (public) batch size. With a deviation
  // unclipped_count_stddev > 0 the numbers of units within the bounds, and of those that are finite
  // where the clipper counts them, are released too, each with so much noise; the gradient gets
  // more than without, so that both together are one release with the event's noise multiplier
  // (other_noise_multiplier). Throws, with nothing released, when the ledger cannot be written,
  // when `budget_check` does not allow it (Ledger::record), when the batch is of another population
  // than the ledger's, and when the unclipped_count_stddev is too little for the noise multiplier.
  NoisyGradient release(ClippedSum sum, Ledger& ledger,
                        const Ledger::BudgetCheck& budget_check = {},
                        double unclipped_count_stddev = 0) {
    return release(std::move(sum), ledger, nullptr, budget_check, unclipped_count_stddev);
  }
  // The same, and the optimizer's step with it: noise, division and update in one pass over the
  // parameters, block by block. Throws also what Optimizer::step() throws, before anything is
  // recorded; but should noise make a number infinite, in the middle of the update.
  NoisyGradient update(ClippedSum sum, Ledger& ledger, nn::Optimizer& optimizer,
                       const Ledger::BudgetCheck& budget_check = {},
                       double unclipped_count_stddev = 0) {
    return release(std::move(sum), ledger, &optimizer, budget_check, unclipped_count_stddev);
  }
  // The same for bounded statistics of the units: estimates of their means over the units drawn,
  // the sums with noise divided by the expected number of units.
  std::vector<double> release(BoundedStatistics statistics, Ledger& ledger,
                              const Ledger::BudgetCheck& budget_check = {});
  // Says that a release is to come, like the last one as far as anyone knows: noise for it may be
  // drawn by threads that have nothing to do until then. Changes nothing of what is released, and
  // does not throw.
  virtual void expect_release() {}
  // What a release is accounted as, from the event of its batch (SampledBatch::event,
  // Sampler::event).
  virtual Event event(Event batch) const = 0;
  // For the privacy statement.
  virtual std::string description() const = 0;

 protected:
  // Called before anything is written to the ledger; throws std::invalid_argument when this sum
  // must not be released now.
  virtual void prepare(const SampledBatch& /*draw*/, const Gradients& /*sums*/,
                       double /*sensitivity*/, const Ledger& /*ledger*/) {}
  // How much noise a sum gets: of deviation multiplier * sensitivity, on every element. The sum
  // with noise is divided by `divisor` in the same pass.
  struct Scale {
    double multiplier = 0, sensitivity = 1, divisor = 1;
    OnBlockReady finished{};              // to be told, if there is one
    nn::Optimizer::Step* step = nullptr;  // what is told, if there is one
  };
  // Throws std::invalid_argument when there is no noise of this scale for so many elements: before
  // anything is written to the ledger.
  virtual void check_scale(const Scale& /*scale*/, std::int64_t /*elements*/) const {}
  // Into `released`, tensors of the parameters' types, which may be the sums.
  virtual void add_noise(const Gradients& sums, const Gradients& released, const Scale& scale) = 0;
  // The standard deviation of what the next add_noise() adds to each element before the division.
  virtual double noise_deviation(const Scale& scale) const = 0;
  // Noise that nobody can predict.
  virtual bool secure() const = 0;
  // Noise that has nothing to do with that of other releases.
  virtual bool independent() const { return true; }

 private:
  NoisyGradient release(ClippedSum sum, Ledger& ledger, nn::Optimizer* optimizer,
                        const Ledger::BudgetCheck& budget_check, double unclipped_count_stddev);
  void check_independent() const;
  void record(const SampledBatch& draw, Ledger& ledger, const Ledger::BudgetCheck& budget_check);
  std::vector<double> noisy(const std::vector<double>& sums, const Scale& scale);
};

// How normal noise is drawn and added.
enum class GaussianNoise {
  // The sum is rounded to a grid, and noise of whole spacings is added to it, exact normals rounded
  // to the grid: what is released is a function of the ideal Gaussian mechanism's result for the
  // rounded sum, whose greater sensitivity the noise is scaled by (docs/privacy.md, "The noise").
  rounded,
  // In double precision. Which values can occur depends on the sum (Mironov 2012): the privacy
  // promised is that of the ideal mechanism up to this effect.
  floating_point,
};

// Adds independent normal noise of standard deviation noise_multiplier * sensitivity (Dwork et al.
// 2006), up to a factor of 1 + 2^-19 more when rounded. A rounded release throws
// std::invalid_argument when a sum is not a number or noise_grid() refuses the scales; an infinite
// sum counts as the largest finite one.
class GaussianMechanism final : public Mechanism {
 public:
  // Throws std::invalid_argument unless noise_multiplier is finite and >= 0. A multiplier of 0 is
  // no privacy, and the ledger says so.
  explicit GaussianMechanism(double noise_multiplier, SecretRandom random = SecretRandom(),
                             GaussianNoise noise = GaussianNoise::rounded);

  double noise_multiplier() const { return noise_multiplier_; }
  // For the next releases, as for the constructor.
  void set_noise_multiplier(double noise_multiplier);
  void expect_release() override;
  Event event(Event batch) const override;
  std::string description() const override;

 protected:
  void add_noise(const Gradients& sums, const Gradients& released, const Scale& scale) override;
  void check_scale(const Scale& scale, std::int64_t elements) const override;
  double noise_deviation(const Scale& scale) const override {
    return scale.multiplier * scale.sensitivity;
  }
  bool secure() const override { return random_.secure(); }

 private:
  void add_rounded(const Gradients& sums, const Gradients& released, const Scale& scale);
  void add_floating_point(const Gradients& sums, const Gradients& released, const Scale& scale);

  double noise_multiplier_ = 0;
  SecretRandom random_;
  GaussianNoise noise_;
  // Of the last rounded release: its grid, the sampler for that, and how many elements each sum
  // had, if the release before was on the same grid and the sums were the host's.
  NoiseGrid grid_;
  std::shared_ptr<const RoundedGaussian> sampler_;
  std::vector<std::int64_t> expected_;
  std::unique_ptr<NoisePrefetch> ahead_;
  std::vector<double> draws_;
};

}  // namespace sotto
