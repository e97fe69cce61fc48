#include "sotto/nn/rules.h"

#include <cmath>

#include "sotto/kernels/compute.h"
#include "sotto/kernels/functors.h"

namespace sotto::nn {

namespace {

void check_at_least_zero(const char* rule, const char* option, double value) {
  check(value >= 0 && std::isfinite(value), "{}: {} is {}", rule, option, value);
}

// Factors that remember: in [0, 1).
void check_memory(const char* rule, const char* option, double value) {
  check(value >= 0 && value < 1, "{}: {} is {} outside [0, 1)", rule, option, value);
}

// grad + decay value
Tensor decayed(const Update& update, double decay) {
  if (decay == 0) return update.grad;
  const Tensor g = clone(update.grad);
  axpby(decay, update.value, 1, g);
  return g;
}

// The buffer, filled with `initial` at its first use.
const Tensor& buffer(const Update& update, std::size_t index, double initial = 0) {
  Tensor& state = update.buffers[index];
  if (!state.defined()) {
    state = empty_like(update.value);
    backend(state.device()).fill(initial, state.view());
  }
  return state;
}

// mean = memory mean + (1 - memory) x
void average_in(const Tensor& x, double memory, const Tensor& mean) {
  axpby(1 - memory, x, memory, mean);
}

Tensor squared(const Tensor& x) { return mul(x, x); }

Tensor root(const Tensor& x) { return unary(unary_index<Sqrt>, x); }

Tensor affine(const Tensor& x, double factor, double offset) {
  return unary(unary_index<Affine>, x, {factor, offset});
}

Tensor quotient(const Tensor& a, const Tensor& b) { return binary(binary_index<Div>, a, b); }

Tensor larger(const Tensor& a, const Tensor& b) { return binary(binary_index<Maximum>, a, b); }

double length(const Tensor& x) { return std::sqrt(to_dtype(sum(squared(x)), Dtype::f64).item()); }

// 1 - memory^t, the sum of an average's weights after t steps.
double weight_sum(double memory, std::int64_t t) {
  return 1 - std::pow(memory, static_cast<double>(t));
}

}  // namespace

void SgdRule::validate() const {
  check_at_least_zero("sgd", "learning_rate", learning_rate);
  check_at_least_zero("sgd", "weight_decay", weight_decay);
  check_at_least_zero("sgd", "momentum", momentum);
  check(std::isfinite(dampening), "sgd: dampening is {}", dampening);
  check(!nesterov || (momentum > 0 && dampening == 0),
        "sgd: nesterov with momentum {} and dampening {}", momentum, dampening);
}

std::vector<const char*> SgdRule::buffers() const {
  if (momentum == 0) return {};
  return {"momentum"};
}

void SgdRule::apply(const Update& update) const {
  Tensor direction = maximize ? scale(update.grad, -1) : update.grad;
  direction = decayed({.value = update.value, .grad = direction}, weight_decay);
  if (momentum > 0) {
    Tensor& b = update.buffers[0];
    if (b.defined())
      axpby(1 - dampening, direction, momentum, b);
    else
      b = clone(direction);
    if (nesterov) {
      const Tensor ahead = clone(direction);
      axpby(momentum, b, 1, ahead);
      direction = ahead;
    } else {
      direction = b;
    }
  }
  axpby(-update.learning_rate, direction, 1, update.value);
}

template <bool decoupled>
void AdamRule<decoupled>::validate() const {
  check_at_least_zero("adam", "learning_rate", learning_rate);
  check_at_least_zero("adam", "weight_decay", weight_decay);
  check_at_least_zero("adam", "eps", eps);
  check_memory("adam", "beta1", beta1);
  check_memory("adam", "beta2", beta2);
}

template <bool decoupled>
std::vector<const char*> AdamRule<decoupled>::buffers() const {
  if (amsgrad) return {"mean", "mean_square", "max_mean_square"};
  return {"mean", "mean_square"};
}

template <bool decoupled>
void AdamRule<decoupled>::apply(const Update& update) const {
  const double rate = update.learning_rate;
  if (decoupled) axpby(1 - rate * weight_decay, update.value, 0, update.value);
  const Tensor g = decayed(update, decoupled ? 0 : weight_decay);
  const Tensor& m = buffer(update, 0);
  Tensor v = buffer(update, 1);
  average_in(g, beta1, m);
  average_in(squared(g), beta2, v);
  if (amsgrad) v = update.buffers[2] = larger(buffer(update, 2), v);
  const Tensor scaled = affine(root(v), 1 / std::sqrt(weight_sum(beta2, update.t)), eps);
  axpby(-rate / weight_sum(beta1, update.t), quotient(m, scaled), 1, update.value);
}

template struct AdamRule<false>;
template struct AdamRule<true>;

void RmsPropRule::validate() const {
  check_at_least_zero("rmsprop", "learning_rate", learning_rate);
  check_at_least_zero("rmsprop", "weight_decay", weight_decay);
  check_at_least_zero("rmsprop", "eps", eps);
  check_at_least_zero("rmsprop", "momentum", momentum);
  check_memory("rmsprop", "alpha", alpha);
}

std::vector<const char*> RmsPropRule::buffers() const {
  std::vector<const char*> names{"mean_square"};
  if (centered) names.push_back("mean");
  if (momentum > 0) names.push_back("momentum");
  return names;
}

void RmsPropRule::apply(const Update& update) const {
  const Tensor g = decayed(update, weight_decay);
  Tensor v = buffer(update, 0);
  average_in(squared(g), alpha, v);
  if (centered) {
    const Tensor& mean = buffer(update, 1);
    average_in(g, alpha, mean);
    // Rounding must not take a variance below zero.
    v = larger(sub(v, squared(mean)), zeros({}, v.dtype(), v.device()));
  }
  Tensor direction = quotient(g, affine(root(v), 1, eps));
  if (momentum > 0) {
    const Tensor& b = buffer(update, centered ? 2 : 1);
    axpby(1, direction, momentum, b);
    direction = b;
  }
  axpby(-update.learning_rate, direction, 1, update.value);
}

void AdagradRule::validate() const {
  check_at_least_zero("adagrad", "learning_rate", learning_rate);
  check_at_least_zero("adagrad", "rate_decay", rate_decay);
  check_at_least_zero("adagrad", "weight_decay", weight_decay);
  check_at_least_zero("adagrad", "initial", initial);
  check_at_least_zero("adagrad", "eps", eps);
}

std::vector<const char*> AdagradRule::buffers() const { return {"sum_square"}; }

void AdagradRule::apply(const Update& update) const {
  const Tensor g = decayed(update, weight_decay);
  const Tensor& v = buffer(update, 0, initial);
  axpby(1, squared(g), 1, v);
  const double rate = update.learning_rate / (1 + static_cast<double>(update.t - 1) * rate_decay);
  axpby(-rate, quotient(g, affine(root(v), 1, eps)), 1, update.value);
}

void AdamaxRule::validate() const {
  check_at_least_zero("adamax", "learning_rate", learning_rate);
  check_at_least_zero("adamax", "weight_decay", weight_decay);
  check_at_least_zero("adamax", "eps", eps);
  check_memory("adamax", "beta1", beta1);
  check_memory("adamax", "beta2", beta2);
}

std::vector<const char*> AdamaxRule::buffers() const { return {"mean", "max_size"}; }

void AdamaxRule::apply(const Update& update) const {
  const Tensor g = decayed(update, weight_decay);
  const Tensor& m = buffer(update, 0);
  average_in(g, beta1, m);
  const Tensor size = affine(unary(unary_index<Abs>, g), 1, eps);
  const Tensor u = update.buffers[1] = larger(scale(buffer(update, 1), beta2), size);
  axpby(-update.learning_rate / weight_sum(beta1, update.t), quotient(m, u), 1, update.value);
}

void AdadeltaRule::validate() const {
  check_at_least_zero("adadelta", "learning_rate", learning_rate);
  check_at_least_zero("adadelta", "weight_decay", weight_decay);
  check_at_least_zero("adadelta", "eps", eps);
  check_memory("adadelta", "rho", rho);
}

std::vector<const char*> AdadeltaRule::buffers() const {
  return {"mean_square", "mean_square_change"};
}

void AdadeltaRule::apply(const Update& update) const {
  const Tensor g = decayed(update, weight_decay);
  const Tensor& v = buffer(update, 0);
  const Tensor& a = buffer(update, 1);
  average_in(squared(g), rho, v);
  const Tensor ratio = root(quotient(affine(a, 1, eps), affine(v, 1, eps)));
  const Tensor change = mul(ratio, g);
  average_in(squared(change), rho, a);
  axpby(-update.learning_rate, change, 1, update.value);
}

void LambRule::validate() const {
  check_at_least_zero("lamb", "learning_rate", learning_rate);
  check_at_least_zero("lamb", "weight_decay", weight_decay);
  check_at_least_zero("lamb", "eps", eps);
  check_memory("lamb", "beta1", beta1);
  check_memory("lamb", "beta2", beta2);
}

std::vector<const char*> LambRule::buffers() const { return {"mean", "mean_square"}; }

void LambRule::apply(const Update& update) const {
  const Tensor &m = buffer(update, 0), &v = buffer(update, 1);
  average_in(update.grad, beta1, m);
  average_in(squared(update.grad), beta2, v);
  const Tensor scaled = affine(root(v), 1 / std::sqrt(weight_sum(beta2, update.t)), eps);
  const Tensor r = quotient(affine(m, 1 / weight_sum(beta1, update.t), 0), scaled);
  axpby(weight_decay, update.value, 1, r);
  const double of_value = length(update.value), of_update = length(r);
  const double trust = of_value > 0 && of_update > 0 ? of_value / of_update : 1;
  axpby(-update.learning_rate * trust, r, 1, update.value);
}

void DpAdamRule::validate() const {
  check_at_least_zero("dp_adam", "learning_rate", learning_rate);
  check_at_least_zero("dp_adam", "weight_decay", weight_decay);
  check(floor > 0 && std::isfinite(floor), "dp_adam: floor is {}", floor);
  check_memory("dp_adam", "beta1", beta1);
  check_memory("dp_adam", "beta2", beta2);
}

std::vector<const char*> DpAdamRule::buffers() const { return {"mean", "mean_square"}; }

void DpAdamRule::apply(const Update& update) const {
  const Tensor g = decayed(update, weight_decay);
  const Tensor &m = buffer(update, 0), &v = buffer(update, 1);
  average_in(g, beta1, m);
  average_in(squared(g), beta2, v);
  const Tensor own = affine(v, 1 / weight_sum(beta2, update.t), -update.noise_variance);
  const Tensor least = full({}, floor, v.dtype(), v.device());
  axpby(-update.learning_rate / weight_sum(beta1, update.t), quotient(m, root(larger(own, least))),
        1, update.value);
}

}  // namespace sotto::nn
