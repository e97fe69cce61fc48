// The Gaussian mechanism: independent normal noise.
#pragma once

#include <memory>
#include <string>

#include "dp/noise/gaussian_noise.h"
#include "dp/noise/mechanism.h"

namespace sotto {
class SecretRandom;
}  // namespace sotto

namespace sotto {

// The Gaussian mechanism (Dwork et al. 2006): adds independent normal noise of standard deviation
// noise_multiplier * sensitivity. Engine makes one unless a noise_strategy is set; Mechanism shows
// how to use one directly. Discretized noise is larger by a factor of up to 1 + 2^-19; its releases
// throw std::invalid_argument if a sum is NaN or noise_grid() refuses the scale, and count an
// infinite sum as the largest finite one.
class GaussianMechanism final : public Mechanism {
 public:
  // Throws std::invalid_argument unless noise_multiplier is finite and >= 0. A multiplier of 0
  // gives no privacy: the ledger's epsilon is then infinite.
  explicit GaussianMechanism(double noise_multiplier,
                             GaussianNoise noise = GaussianNoise::discretized);
  // With the caller's generator; a seeded one marks the ledger as not private.
  GaussianMechanism(double noise_multiplier, SecretRandom random,
                    GaussianNoise noise = GaussianNoise::discretized);
  ~GaussianMechanism() override;

  double noise_multiplier() const { return noise_multiplier_; }  // of further releases
  void set_noise_multiplier(double noise_multiplier) override;
  void prefetch() override;
  Event event(Event batch) const override;
  std::string description() const override;

 protected:
  void add_noise(NoisyUpdate& update, const NoiseScale& scale) override;
  void check_scale(const NoiseScale& scale, std::int64_t elements) const override;
  double noise_stddev(const NoiseScale& scale) const override {
    return scale.multiplier * scale.sensitivity;
  }
  bool drops_gradients(const NoiseScale& scale) const override {
    return scale.multiplier > 0 && noise_ == GaussianNoise::discretized;
  }
  bool secure() const override;

 private:
  struct State;
  void add_rounded(NoisyUpdate& update, const NoiseScale& scale);
  void add_floating_point(NoisyUpdate& update, const NoiseScale& scale);

  double noise_multiplier_ = 0;
  GaussianNoise noise_;
  std::unique_ptr<State> state_;
};

}  // namespace sotto
