// Loss scaling (Micikevicius et al. 2018): gradients that would vanish in f16 are kept by a factor
// on the loss, a power of two, by which sums are divided again, exactly. How the factor moves is
// another matter for private training, where whether something overflowed is a secret.
#pragma once

#include <cstdint>
#include <optional>

#include "autograd/parameter.h"

namespace sotto {

struct LossScaling {
  enum class Adjust {
    never,
    // Ordinary training: a step whose gradient is not finite is left out and the scale halved.
    // Refused by private training.
    on_overflow,
    // Private training: halved when the released share of units with a finite gradient says so.
    on_release,
  };
  Adjust adjust = Adjust::never;
  // What it starts with; 1, and 2^8 with f16, unless it is given.
  std::optional<double> first = {};
  double least = 1, largest = 0x1p24;
  // Good steps after which it is doubled.
  std::int64_t growth_interval = 2000;
  // on_release: the share of units that may overflow in a good step, above the noise on it.
  double tolerated = 0.2;
};

class LossScale {
 public:
  // Throws std::invalid_argument unless the scales are powers of two from 2^-24 to 2^24 with
  // least <= first <= largest, the interval is positive and 0 < tolerated < 1.
  explicit LossScale(const LossScaling& options = {}, Dtype precision = Dtype::f32);

  double value() const { return value_; }
  std::int64_t good_steps() const { return good_steps_; }  // since it last moved
  const LossScaling& options() const { return options_; }

  // Ordinary training: gradients of a loss times value(), divided by it. Nothing when one is not
  // finite and the scale moves on_overflow: that step is left out. Throws std::invalid_argument
  // for a scale that moves on_release.
  std::optional<Gradients> unscaled(const Gradients& gradients);
  // Private training, after a step: the released share of units whose gradient was finite. Throws
  // std::invalid_argument unless the scale moves on_release.
  void follow(double finite_share);
  // Goes on from another's value() and good_steps(). Throws std::invalid_argument for a value
  // outside the limits.
  void resume(double value, std::int64_t good_steps);

 private:
  void move(bool good);

  LossScaling options_;
  double value_;
  std::int64_t good_steps_ = 0;
};

// Throws std::invalid_argument for what is not a power of two from 2^-24 to 2^24.
void check_loss_scale(double scale);

}  // namespace sotto
