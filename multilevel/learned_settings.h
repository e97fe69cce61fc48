// Settings of SGD that are learned while it runs, by their hypergradients (Baydin et al. 2018).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "multilevel/gradient_vectors.h"
#include "nn/optim/optimizer.h"

namespace sotto::multilevel {

// The settings of nn::SgdRule that have a hypergradient; or their derivatives.
struct SgdSettings {
  double learning_rate = 0;  // eta
  double momentum = 0;       // mu
  double weight_decay = 0;   // lambda
};

// Which settings are learned, and how fast.
struct LearnedSettingsOptions {
  SgdSettings initial = {};         // those that the optimizer was made with
  bool learn_learning_rate = true;  // from above 0
  bool learn_momentum = false;      // from above 0, below 1
  bool learn_weight_decay = false;  // from above 0
  // Adam's learning rate (with beta2 0.9: hypergradients fall while one trains) for the logarithms
  // of the learning rate, of the weight decay and of 1 - momentum, which stay within a factor 100
  // of the initial ones.
  double rate = 0.02;
  // How much of the effect on earlier steps counts: 0, the last step alone, to 1, all steps (Donini
  // et al. 2020).
  double discount = 0;
};

// Learns settings of an optimizer that steps by nn::SgdRule, without dampening and Nesterov's
// momentum:
//
//   b' = mu b + g + lambda w,   w' = w - eta b'.
//
// The derivative of an upper loss M(w') by a setting s is <v, z'> with v its gradient and, with the
// gradients g taken as constants,
//
//   c' = mu c + lambda z + (b for mu, w for lambda),   z' = z - eta c' - (b' for eta),
//
// z and c times the discount before. It reads weights alone, of whose differences b is made. So if
// these were released by a private training, and v is of public data, it is post-processing, and
// costs no privacy.
//
//   LearnedSettings learned(model.parameters(), optimizer, {.initial = {.learning_rate = 0.1}});
//   ... optimizer.step(gradients) or engine.step(loss) ...
//   learned.update(gradient of the upper loss at the weights as they are now);
class LearnedSettings {
 public:
  // Sets the optimizer's settings to the initial ones: the learning rate of its group 0, which must
  // have these parameters; weight decay of all, and momentum of all unless it is 0. Both must
  // outlive it. Throws std::invalid_argument for numbers out of range, if no setting is to be
  // learned, and for an optimizer without momentum or weight decay.
  LearnedSettings(std::vector<Parameter*> parameters, nn::Optimizer& optimizer,
                  const LearnedSettingsOptions& options);

  // Call after each step, with v at the new weights. Moves the settings for the next one. Throws
  // std::invalid_argument, before any change, for a v that is not finite.
  void update(const Gradients& v);
  const SgdSettings& settings() const { return settings_; }
  // The derivatives that the last update() moved by; 0 for settings that are not learned.
  const SgdSettings& derivatives() const { return derivatives_; }
  // The gradient g of the last step, with its noise, as computed from the change of the weights.
  const Gradients& gradient() const { return gradient_; }

  // For a training checkpoint. The tensors are copies.
  std::map<std::string, Tensor> state() const;
  // Continues from a state, after the weights were set. Throws std::invalid_argument, before any
  // change, for an entry that is missing or of another shape or dtype.
  void load_state(const std::map<std::string, Tensor>& state);

 private:
  // Derivatives of weights and momentum by one setting.
  struct Tangent {
    bool learned = false;
    Gradients z = {}, c = {};
  };
  Gradients weights() const;
  void advance(Tangent& tangent, const Gradients* factor);
  void move();
  void take_logarithms();
  void apply();
  std::map<std::string, Tensor> entries() const;

  std::vector<Parameter*> parameters_;
  nn::Optimizer& optimizer_;
  LearnedSettingsOptions options_;
  SgdSettings settings_, derivatives_;
  Gradients weights_, buffer_;  // w and b before the next step
  Gradients gradient_;
  Tangent learning_rate_, momentum_, weight_decay_;
  Parameter logarithms_;  // ln eta, ln lambda, ln(1 - mu)
  nn::Adam adam_;
};

}  // namespace sotto::multilevel
