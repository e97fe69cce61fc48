#include "nn/optim/update_rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "core/threads/parallel.h"
#include "kernels/backend.h"
#include "kernels/functors/functors.h"
#include "kernels/host_device/optimizer_update.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/shards.h"
#include "nn/optim/update_plan.h"

namespace sotto::nn {

namespace {

void check_at_least_zero(const char* rule, const char* option, double value) {
  check(value >= 0 && std::isfinite(value), "{}: {} is {}", rule, option, value);
}

// Decay factors of exponential averages: in [0, 1).
void check_memory(const char* rule, const char* option, double value) {
  check(value >= 0 && value < 1, "{}: {} is {} outside [0, 1)", rule, option, value);
}

// Returns the buffer, zero at its first use.
const Tensor& buffer(const Update& update, std::size_t index) {
  Tensor& state = update.buffers[index];
  if (!state.defined()) state = zeros_like(update.value);
  return state;
}

// mean = memory mean + (1 - memory) x
void average_in(const Tensor& x, double beta2, const Tensor& mean) {
  axpby(1 - beta2, x, beta2, mean);
}

Tensor squared(const Tensor& x) { return mul(x, x); }

Tensor root(const Tensor& x) { return unary(unary_index<functors::Sqrt>, x); }

Tensor affine(const Tensor& x, double factor, double offset) {
  return unary(unary_index<functors::Affine>, x, {factor, offset});
}

Tensor quotient(const Tensor& a, const Tensor& b) {
  return binary(binary_index<functors::Div>, a, b);
}

// Adds the squares of each block of elements to sums[2 k + place], for block k.
template <class T>
void add_squares(const Tensor& x, std::size_t place, std::vector<double>& sums) {
  const Tensor row_major = contiguous(x);
  const std::span<const T> values(row_major.view().as<const T>(),
                                  static_cast<std::size_t>(x.numel()));
  constexpr std::size_t block = Shards::group_elements;
  parallel_for(std::ssize(sums) / 2, 64, [&](std::int64_t begin, std::int64_t end) {
    for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k) {
      const auto own = values.subspan(k * block, std::min(block, values.size() - k * block));
      std::array<double, 8> partial{};  // in which the sum does not wait for each addition
      for (std::size_t i = 0; i < own.size(); ++i) {
        const double value = own[i];
        partial[i % 8] += value * value;
      }
      for (const double one : partial) sums[2 * k + place] += one;
    }
  });
}

// The same on a GPU.
void add_squares_there(const Tensor& x, std::size_t place, std::vector<double>& sums) {
  const Tensor flat = contiguous(x).view_as({-1}).value();
  constexpr std::int64_t block = Shards::group_elements;
  const std::int64_t whole = x.numel() / block * block;
  std::size_t k = place;
  const auto add = [&](const Tensor& rows) {
    if (rows.numel() == 0) return;
    const Tensor squares = Tensor::empty({rows.size(0)}, Dtype::f64, x.device());
    backend(x.device()).row_dot(rows.view(), rows.view(), squares.view());
    for (const double square : squares.to_vector<double>()) {
      sums[k] += square;
      k += 2;
    }
  };
  add(flat.slice(0, 0, whole).view_as({whole / block, block}).value());
  add(flat.slice(0, whole, x.numel()).unsqueeze(0));
}

// The norms of the parameter and of `r`, over the elements of all ranks. Squares are summed in
// blocks, and these in the order of elements, so that the ranks do not change the bits.
std::pair<double, double> norms(const Update& update, const Tensor& r) {
  constexpr std::int64_t block = Shards::group_elements;
  std::vector<double> sums(static_cast<std::size_t>((r.numel() + block - 1) / block * 2));
  const bool narrow = update.value.dtype() == Dtype::f32;
  const auto add = update.value.device() != cpu ? add_squares_there
                   : narrow                     ? add_squares<float>
                                                : add_squares<double>;
  add(update.value, 0, sums);
  add(r, 1, sums);
  if (update.shards != nullptr) sums = update.shards->of_all_groups(*update.parameter, sums, 2);
  double of_value = 0, of_update = 0;
  for (std::size_t k = 0; k < sums.size(); k += 2) {
    of_value += sums[k];
    of_update += sums[k + 1];
  }
  return {std::sqrt(of_value), std::sqrt(of_update)};
}

// 1 - memory^t, the sum of an average's weights after t steps.
double weight_sum(double beta2, std::int64_t t) {
  return 1 - std::pow(beta2, static_cast<double>(t));
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

RulePlan SgdRule::plan(const Update& update) const {
  return {.rule = UpdateRules::index<SgdStep>(),
          .constants = {.rate = update.learning_rate,
                        .decay = weight_decay,
                        .momentum = momentum,
                        .one_minus_dampening = 1 - dampening,
                        .nesterov = nesterov,
                        .maximize = maximize}};
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
RulePlan AdamRule<decoupled>::plan(const Update& update) const {
  const double rate = update.learning_rate;
  return {.rule = UpdateRules::index<AdamStep>(),
          .constants = {.rate = rate / weight_sum(beta1, update.t),
                        .decay = decoupled ? 0 : weight_decay,
                        .decoupled_decay = decoupled ? 1 - rate * weight_decay : 1,
                        .momentum = beta1,
                        .beta2 = beta2,
                        .correction = 1 / std::sqrt(weight_sum(beta2, update.t)),
                        .eps = eps}};
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

RulePlan RmsPropRule::plan(const Update& update) const {
  return {.rule = UpdateRules::index<RmsPropStep>(),
          .constants = {.rate = update.learning_rate,
                        .decay = weight_decay,
                        .momentum = momentum,
                        .beta2 = alpha,
                        .eps = eps,
                        .centered = centered}};
}

void AdagradRule::validate() const {
  check_at_least_zero("adagrad", "learning_rate", learning_rate);
  check_at_least_zero("adagrad", "rate_decay", rate_decay);
  check_at_least_zero("adagrad", "weight_decay", weight_decay);
  check_at_least_zero("adagrad", "initial", initial);
  check_at_least_zero("adagrad", "eps", eps);
}

std::vector<const char*> AdagradRule::buffers() const { return {"sum_square"}; }

RulePlan AdagradRule::plan(const Update& update) const {
  const double slowed = 1 + static_cast<double>(update.t - 1) * rate_decay;
  return {.rule = UpdateRules::index<AdagradStep>(),
          .constants = {.rate = update.learning_rate / slowed, .decay = weight_decay, .eps = eps},
          .start = initial};
}

void AdamaxRule::validate() const {
  check_at_least_zero("adamax", "learning_rate", learning_rate);
  check_at_least_zero("adamax", "weight_decay", weight_decay);
  check_at_least_zero("adamax", "eps", eps);
  check_memory("adamax", "beta1", beta1);
  check_memory("adamax", "beta2", beta2);
}

std::vector<const char*> AdamaxRule::buffers() const { return {"mean", "max_size"}; }

RulePlan AdamaxRule::plan(const Update& update) const {
  return {.rule = UpdateRules::index<AdamaxStep>(),
          .constants = {.rate = update.learning_rate / weight_sum(beta1, update.t),
                        .decay = weight_decay,
                        .momentum = beta1,
                        .beta2 = beta2,
                        .eps = eps}};
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

RulePlan AdadeltaRule::plan(const Update& update) const {
  return {
      .rule = UpdateRules::index<AdadeltaStep>(),
      .constants = {.rate = update.learning_rate, .decay = weight_decay, .beta2 = rho, .eps = eps}};
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
  const auto [of_value, of_update] = norms(update, r);
  const double trust = of_value > 0 && of_update > 0 ? of_value / of_update : 1;
  axpby(-update.learning_rate * trust, r, 1, update.value);
}

std::string LambRule::text() const {
  return fmt::format(" lamb {} {} {} {}", beta1, beta2, eps, weight_decay);
}

void DpAdamRule::validate() const {
  check_at_least_zero("dp_adam", "learning_rate", learning_rate);
  check_at_least_zero("dp_adam", "weight_decay", weight_decay);
  check(floor > 0 && std::isfinite(floor), "dp_adam: floor is {}", floor);
  check_memory("dp_adam", "beta1", beta1);
  check_memory("dp_adam", "beta2", beta2);
}

std::vector<const char*> DpAdamRule::buffers() const { return {"mean", "mean_square"}; }

RulePlan DpAdamRule::plan(const Update& update) const {
  return {.rule = UpdateRules::index<DpAdamStep>(),
          .constants = {.rate = update.learning_rate / weight_sum(beta1, update.t),
                        .decay = weight_decay,
                        .momentum = beta1,
                        .beta2 = beta2,
                        .correction = 1 / weight_sum(beta2, update.t),
                        .offset = -update.noise_variance,
                        .eps = floor}};
}

}  // namespace sotto::nn
