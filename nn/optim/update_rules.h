// Update rules: how a step changes one parameter. Below, g is the gradient, p the parameter, and t
// = 1, 2, ... counts its steps; states start at zero unless the rule says otherwise. Every rule but
// AdamW's first adds weight decay: g + weight_decay p.
//
// Every rule has `learning_rate`, the initial rate; validate(), which throws std::invalid_argument
// for options out of range; and buffers(), the names of the states it keeps for each parameter. An
// elementwise rule has plan(), the step for a block of the parameter; any other has apply(), which
// updates the whole parameter.
#pragma once

#include <string>
#include <vector>

namespace sotto::nn {

struct Update;
struct RulePlan;

// b = g at the first step, then momentum b + (1 - dampening) g; p - rate b, or with nesterov p -
// rate (g + momentum b). `maximize` negates g first.
struct SgdRule {
  double learning_rate = 0.01;  // initial, >= 0
  double momentum = 0;          // >= 0
  double dampening = 0;         // of the gradient
  double weight_decay = 0;      // coefficient, >= 0
  bool nesterov = false;        // Nesterov's momentum
  bool maximize = false;        // ascends

  void validate() const;
  std::vector<const char*> buffers() const;
  RulePlan plan(const Update& update) const;
};

// m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2,
// p - rate m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) (Kingma and Ba 2015); with amsgrad v
// is the largest so far (Reddi et al. 2018). Decoupled (AdamW): p is first multiplied by 1 - rate
// weight_decay, and g has no decay (Loshchilov and Hutter 2019).
template <bool decoupled>
struct AdamRule {
  double learning_rate = 0.001;                // initial, >= 0
  double beta1 = 0.9;                          // in [0, 1)
  double beta2 = 0.999;                        // in [0, 1)
  double eps = 1e-8;                           // keeps denominators from 0
  double weight_decay = decoupled ? 0.01 : 0;  // coefficient, >= 0
  bool amsgrad = false;                        // largest v so far

  void validate() const;
  std::vector<const char*> buffers() const;
  RulePlan plan(const Update& update) const;
};

extern template struct AdamRule<false>;
extern template struct AdamRule<true>;

// v = alpha v + (1 - alpha) g^2, s = sqrt(v) + eps; centered: a = alpha a + (1 - alpha) g,
// s = sqrt(v - a^2) + eps; b = momentum b + g / s, p - rate b (Tieleman and Hinton 2012).
struct RmsPropRule {
  double learning_rate = 0.01;  // initial, >= 0
  double alpha = 0.99;          // of the mean of squares
  double eps = 1e-8;            // keeps denominators from 0
  double weight_decay = 0;      // coefficient, >= 0
  double momentum = 0;          // >= 0
  bool centered = false;        // subtracts the squared mean

  void validate() const;
  std::vector<const char*> buffers() const;
  RulePlan plan(const Update& update) const;
};

// v = v + g^2, with v = `initial` before the first step, p - rate / (1 + (t - 1) rate_decay) g /
// (sqrt(v) + eps) (Duchi et al. 2011).
struct AdagradRule {
  double learning_rate = 0.01;  // initial, >= 0
  double rate_decay = 0;        // rate / (1 + (t - 1) rate_decay)
  double weight_decay = 0;      // coefficient, >= 0
  double initial = 0;           // of the sum of squares
  double eps = 1e-10;           // keeps denominators from 0

  void validate() const;
  std::vector<const char*> buffers() const;
  RulePlan plan(const Update& update) const;
};

// m as in Adam, u = max(beta2 u, |g| + eps), p - rate / (1 - beta1^t) m / u (Kingma and Ba 2015,
// section 7.1).
struct AdamaxRule {
  double learning_rate = 0.002;  // initial, >= 0
  double beta1 = 0.9;            // in [0, 1)
  double beta2 = 0.999;          // in [0, 1)
  double eps = 1e-8;             // keeps denominators from 0
  double weight_decay = 0;       // coefficient, >= 0

  void validate() const;
  std::vector<const char*> buffers() const;
  RulePlan plan(const Update& update) const;
};

// v = rho v + (1 - rho) g^2, d = sqrt(a + eps) / sqrt(v + eps) g, a = rho a + (1 - rho) d^2,
// p - rate d (Zeiler 2012).
struct AdadeltaRule {
  double learning_rate = 1;  // initial, >= 0
  double rho = 0.9;          // of both means of squares
  double eps = 1e-6;         // keeps denominators from 0
  double weight_decay = 0;   // coefficient, >= 0

  void validate() const;
  std::vector<const char*> buffers() const;
  RulePlan plan(const Update& update) const;
};

// m and v as in Adam; with r = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay
// p,
// p - rate |p| / |r| r, where both norms are over the whole parameter and |p| / |r| is 1 if either
// is 0 (You et al. 2020).
struct LambRule {
  double learning_rate = 0.001;  // initial, >= 0
  double beta1 = 0.9;            // in [0, 1)
  double beta2 = 0.999;          // in [0, 1)
  double eps = 1e-6;             // keeps denominators from 0
  double weight_decay = 0;       // coefficient, >= 0

  void validate() const;
  std::vector<const char*> buffers() const;
  void apply(const Update& update) const;
  // The options but for the rate, for comparisons.
  std::string text() const;
};

// Adam with the variance s^2 of the noise subtracted from the second moment (Tang et al. 2023,
// DP-AdamBC): p - rate m / (1 - beta1^t) / sqrt(max(v / (1 - beta2^t) - s^2, floor)).
struct DpAdamRule {
  double learning_rate = 0.001;  // initial, >= 0
  double beta1 = 0.9;            // in [0, 1)
  double beta2 = 0.999;          // in [0, 1)
  double floor = 1e-8;           // least corrected second moment
  double weight_decay = 0;       // coefficient, >= 0

  void validate() const;
  std::vector<const char*> buffers() const;
  RulePlan plan(const Update& update) const;
};

}  // namespace sotto::nn
