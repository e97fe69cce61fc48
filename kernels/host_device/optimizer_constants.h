// The constants of an update rule (kernels/host_device/optimizer_update.h).
#pragma once

namespace sotto {

// Constants of a rule at one step; each rule reads some of them.
struct OptimizerConstants {
  double rate = 0;             // learning rate, with the bias correction of means that start at 0
  double decay = 0;            // weight decay: decay p is added to the gradient
  double decoupled_decay = 1;  // decoupled decay: p is first multiplied by it
  double momentum = 0;         // decay of the mean of gradients (beta1)
  double one_minus_dampening = 1;  // weight of the new gradient in that mean
  double beta2 = 0;                // decay of the mean of squares (beta2)
  double correction = 1;
  double offset = 0;
  double eps = 0;
  bool nesterov = false, maximize = false, centered = false;
};

}  // namespace sotto
