// Loss scaling (Micikevicius et al. 2018): the loss is multiplied by a power of two, so that
// gradients do not underflow in f16, and their sums are divided by it exactly. Private training
// needs a rule of its own for adjusting the scale, because whether a gradient overflowed is secret.
#pragma once

#include <cstdint>
#include <optional>

#include "autograd/parameter.h"

namespace sotto::memory {

// The rule by which a loss scale moves (Micikevicius et al. 2018).
struct LossScaling {
  enum class Adjust {
    never,
    // Ordinary training: a step with a gradient that is not finite is skipped and the scale halved.
    // Private training refuses it.
    on_overflow,
    // Private training: the scale is halved when too small a fraction of units with a finite
    // gradient is released.
    on_release,
  };
  Adjust adjust = Adjust::never;  // never: a fixed scale
  // The initial scale; if unset, 2^8 for f16 and otherwise 1.
  std::optional<double> first = {};
  double min = 1, max = 0x1p24;  // the range of the scale
  // The number of good steps after which the scale is doubled.
  std::int64_t growth_interval = 2000;
  // on_release: the fraction of units that may overflow in a good step; choose it above the noise
  // on the released fraction.
  double tolerated = 0.2;
};

// The present scale of a loss, and the rule by which it moves.
class LossScale {
 public:
  // Throws std::invalid_argument unless the scales are powers of two from 2^-24 to 2^24 with
  // min <= first <= max, the interval is positive and 0 < tolerated < 1.
  explicit LossScale(const LossScaling& options = {}, Dtype precision = Dtype::f32);

  // The present scale, a power of two.
  double value() const { return value_; }
  std::int64_t good_steps() const { return good_steps_; }  // since the scale last moved
  const LossScaling& options() const { return options_; }

  // Ordinary training: divides the gradients of a loss times value() by it. Returns nullopt if one
  // is not finite and the scale moves on_overflow: skip that step. Throws std::invalid_argument for
  // a scale that moves on_release.
  std::optional<Gradients> unscaled(const Gradients& gradients);
  // Private training, after a step: moves the scale by the released fraction of units with a finite
  // gradient. Throws std::invalid_argument unless the scale moves on_release.
  void follow(double finite_share);
  // Continues from saved value() and good_steps(). Throws std::invalid_argument for a value outside
  // the limits.
  void resume(double value, std::int64_t good_steps);

 private:
  void move(bool good);

  LossScaling options_;
  double value_;
  std::int64_t good_steps_ = 0;
};

// Throws std::invalid_argument unless `scale` is a power of two from 2^-24 to 2^24.
void check_loss_scale(double scale);

}  // namespace sotto::memory
