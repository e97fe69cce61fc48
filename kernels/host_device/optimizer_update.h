// The update of one element of a parameter: the arithmetic of nn's update rules (defined in
// nn/optim/update_rules.h) and of a release's noise, for both devices. Device code can include this
// header.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/view.h"
#include "kernels/functors/functors.h"
#include "kernels/host_device/optimizer_constants.h"

namespace sotto {

// A rule is f(c, first, g, p, state): from the gradient g it updates p and its states, in the
// arithmetic type T. At a parameter's first step, each state holds its initial value.

struct SgdStep {
  template <class T>
  HD void operator()(const OptimizerConstants& c, bool first, T g, T& p, T* state) const {
    T direction = (c.maximize ? -g : g) + T(c.decay) * p;
    if (c.momentum > 0) {
      state[0] =
          first ? direction : T(c.one_minus_dampening) * direction + T(c.momentum) * state[0];
      direction = c.nesterov ? T(c.momentum) * state[0] + direction : state[0];
    }
    p -= T(c.rate) * direction;
  }
};

// mean = beta2 mean + (1 - beta2) x
template <class T>
HD void average_in(double beta2, T x, T& mean) {
  mean = T(1 - beta2) * x + T(beta2) * mean;
}

struct AdamStep {
  // The third state is the maximum of the mean squares (AMSGrad).
  template <class T>
  HD void operator()(const OptimizerConstants& c, bool, T g, T& p, T* state) const {
    p *= T(c.decoupled_decay);
    g += T(c.decay) * p;
    average_in(c.momentum, g, state[0]);
    average_in(c.beta2, g * g, state[1]);
    state[2] = functors::Maximum{}(state[2], state[1]);
    p -= T(c.rate) * (state[0] / (T(c.correction) * functors::Sqrt{}(state[2]) + T(c.eps)));
  }
};

struct RmsPropStep {
  template <class T>
  HD void operator()(const OptimizerConstants& c, bool, T g, T& p, T* state) const {
    g += T(c.decay) * p;
    average_in(c.beta2, g * g, state[0]);
    T variance = state[0];
    if (c.centered) {
      average_in(c.beta2, g, state[1]);
      // Rounding must not make a variance negative.
      variance = functors::Maximum{}(variance - state[1] * state[1], T(0));
    }
    T& built_up = state[c.centered ? 2 : 1];
    built_up = g / (functors::Sqrt{}(variance) + T(c.eps)) + T(c.momentum) * built_up;
    p -= T(c.rate) * built_up;
  }
};

struct AdagradStep {
  template <class T>
  HD void operator()(const OptimizerConstants& c, bool, T g, T& p, T* state) const {
    g += T(c.decay) * p;
    state[0] += g * g;
    p -= T(c.rate) * (g / (functors::Sqrt{}(state[0]) + T(c.eps)));
  }
};

struct AdamaxStep {
  template <class T>
  HD void operator()(const OptimizerConstants& c, bool, T g, T& p, T* state) const {
    g += T(c.decay) * p;
    average_in(c.momentum, g, state[0]);
    state[1] = functors::Maximum{}(T(c.beta2) * state[1], functors::Abs{}(g) + T(c.eps));
    p -= T(c.rate) * (state[0] / state[1]);
  }
};

struct AdadeltaStep {
  template <class T>
  HD void operator()(const OptimizerConstants& c, bool, T g, T& p, T* state) const {
    g += T(c.decay) * p;
    average_in(c.beta2, g * g, state[0]);
    const T change = functors::Sqrt{}((state[1] + T(c.eps)) / (state[0] + T(c.eps))) * g;
    average_in(c.beta2, change * change, state[1]);
    p -= T(c.rate) * change;
  }
};

struct DpAdamStep {
  template <class T>
  HD void operator()(const OptimizerConstants& c, bool, T g, T& p, T* state) const {
    g += T(c.decay) * p;
    average_in(c.momentum, g, state[0]);
    average_in(c.beta2, g * g, state[1]);
    const T own = T(c.correction) * state[1] + T(c.offset);
    p -= T(c.rate) * (state[0] / functors::Sqrt{}(functors::Maximum{}(own, T(c.eps))));
  }
};

// Finishes the gradient without updating the parameter.
struct NoStep {
  template <class T>
  HD void operator()(const OptimizerConstants&, bool, T, T&, T*) const {}
};

using UpdateRules = FunctorList<SgdStep, AdamStep, RmsPropStep, AdagradStep, AdamaxStep,
                                AdadeltaStep, DpAdamStep, NoStep>;

inline constexpr int max_states = 3;

// The elements of one parameter, in one order without gaps, f32 or f64.
struct UpdateArray {
  int rule = UpdateRules::index<NoStep>();
  OptimizerConstants constants{};
  Dtype dtype = Dtype::f32;  // of value, gradient and states
  std::int64_t count = 0;
  void* value = nullptr;  // nullptr if the rule is NoStep
  void* gradient = nullptr;
  const double* sum = nullptr;   // sums to which noise is added; nullptr: the gradient's own values
  void* state[max_states] = {};  // as many as the rule has
  bool first = false;            // true: states are not read, but start with `start`
  double start = 0;
  // nullptr, or the noise in multiples of `spacing`: then the gradient becomes on_grid(..) first.
  const std::int64_t* noise = nullptr;
  double spacing = 1, divisor = 1;

  // Elements from .. from + part - 1, without the noise.
  UpdateArray slice(std::int64_t from, std::int64_t part) const {
    UpdateArray y = *this;
    const auto bytes = static_cast<std::size_t>(from) * size_of(dtype);
    const auto move = [&](void*& data) { data = data ? static_cast<char*>(data) + bytes : data; };
    move(y.value);
    move(y.gradient);
    if (y.sum) y.sum += from;
    for (void*& kept : y.state) move(kept);
    y.count = part;
    return y;
  }
};

// value / spacing rounded to the nearest integer, for a power of two `spacing`; limited to +-2^61.
// Not for NaN.
HD inline std::int64_t nearest_multiple(double value, double spacing) {
  constexpr double max = 0x1p61;
  return std::llrint(std::clamp(value / spacing, -max, max));
}

// (The nearest multiple of `spacing` to the sum, plus noise * spacing) / divisor. An infinite sum
// counts as the largest finite one. Not for NaN.
template <class T, class Sum>
HD T on_grid(Sum sum, std::int64_t noise, double spacing, double divisor) {
  constexpr Sum largest = std::numeric_limits<Sum>::max();
  const std::int64_t n = nearest_multiple(std::clamp(sum, -largest, largest), spacing) + noise;
  return static_cast<T>(static_cast<double>(n) * spacing / divisor);
}

// A reason why an element was not updated.
enum class UpdateFault { none, not_a_number, not_finite };
inline constexpr int update_faults = 2;

// The number of states of an array.
HD inline int count_states(const UpdateArray& array) {
  int states = 0;
  while (states < max_states && array.state[states]) ++states;
  return states;
}

// Updates one element completely or not at all. T is the arrays' type, `noisy` whether there is
// noise, and `states` the number of states, an int or a constant. Gradients without noise must be
// finite.
template <class T, bool noisy, class Rule, class States>
HD UpdateFault update_element(const UpdateArray& array, Rule rule, States states, std::int64_t i) {
  T g = static_cast<T*>(array.gradient)[i];
  if constexpr (noisy) {
    const double sum = array.sum ? array.sum[i] : static_cast<double>(g);
    if (sum != sum) return UpdateFault::not_a_number;
    g = on_grid<T>(sum, array.noise[i], array.spacing, array.divisor);
    static_cast<T*>(array.gradient)[i] = g;
    if (g - g != 0) return UpdateFault::not_finite;
  }
  if constexpr (!std::is_same_v<Rule, NoStep>) {
    T state[max_states] = {};  // those that the rule does not have are zero
    for (int k = 0; k < max_states; ++k) {
      if (k >= states) break;
      state[k] = array.first ? T(array.start) : static_cast<const T*>(array.state[k])[i];
    }
    T p = static_cast<const T*>(array.value)[i];
    rule(array.constants, array.first, g, p, state);
    static_cast<T*>(array.value)[i] = p;
    for (int k = 0; k < max_states; ++k) {
      if (k >= states) break;
      static_cast<T*>(array.state[k])[i] = state[k];
    }
  }
  return UpdateFault::none;
}

}  // namespace sotto
