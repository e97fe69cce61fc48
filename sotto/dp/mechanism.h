// Mechanisms: the only way from a clipped sum to something an optimizer takes.
#pragma once

#include <string>

#include "sotto/core/secret_random.h"
#include "sotto/dp/clipping.h"
#include "sotto/dp/ledger.h"

namespace sotto {

// A mean gradient with noise on it, whose release is in the ledger. Only mechanisms make one.
class Released {
 public:
  const Gradients& gradients() const { return gradients_; }

 private:
  friend class Mechanism;
  explicit Released(Gradients gradients) : gradients_(std::move(gradients)) {}
  Gradients gradients_;
};

class Mechanism {
 public:
  virtual ~Mechanism() = default;
  // Writes the event to the ledger, then adds noise in proportion to the sum's sensitivity to every
  // element of every parameter, and divides by the expected (public) batch size. Throws, with
  // nothing released, when the ledger cannot be written.
  Released release(ClippedSum sum, Ledger& ledger);
  // What a release on a batch of this kind will be accounted as.
  virtual Event event(Sampling sampling, double rate) const = 0;
  // For the privacy statement.
  virtual std::string description() const = 0;

 protected:
  virtual void add_noise(const Gradients& sums, double sensitivity) = 0;
  // Noise that nobody can predict.
  virtual bool secure() const = 0;
};

// Adds independent normal noise of standard deviation noise_multiplier * sensitivity (Dwork et al.
// 2006), drawn in floating point: docs/privacy.md says what that leaves open.
class GaussianMechanism final : public Mechanism {
 public:
  // Throws std::invalid_argument unless noise_multiplier is finite and >= 0. A multiplier of 0 is
  // no privacy, and the ledger says so.
  explicit GaussianMechanism(double noise_multiplier, SecretRandom random = SecretRandom());

  double noise_multiplier() const { return noise_multiplier_; }
  Event event(Sampling sampling, double rate) const override;
  std::string description() const override;

 protected:
  void add_noise(const Gradients& sums, double sensitivity) override;
  bool secure() const override { return random_.secure(); }

 private:
  double noise_multiplier_;
  SecretRandom random_;
  std::vector<double> draws_;
};

}  // namespace sotto
