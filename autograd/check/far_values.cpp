#include "autograd/check/far_values.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "autograd/check/op_run.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::testing {

namespace {

using Values = std::vector<double>;

Values values(const Tensor& x) { return to_dtype(x, Dtype::f64).to_vector<double>(); }

// The instance with one element of input i, counted in row-major order, replaced by `value`.
Instance with_element(const Instance& instance, std::size_t i, std::size_t element, double value) {
  Instance changed = instance;
  Values all = values(changed.inputs[i].value);
  all[element] = value;
  changed.inputs[i].value = Tensor::from(all, changed.inputs[i].value.shape());
  return changed;
}

// The loss of the samples that an element affects, at its value and on both sides of it.
struct Around {
  double here = 0, below = 0, below_near = 0, above_near = 0, above = 0;
};

double step_at(double value) { return 0x1p-20 * std::max(1.0, std::abs(value)); }

std::optional<OpRun> run_at(const Instance& instance, std::size_t i, std::size_t element,
                            double value) {
  try {
    return run_case(with_element(instance, i, element, value), Dtype::f64);
  } catch (const std::invalid_argument&) {
    return std::nullopt;  // the function rejects the value
  }
}

// nullopt if the function rejects one of the values.
std::optional<Around> around(const Instance& instance, std::size_t i, std::size_t element,
                             double value, const OpRun& here) {
  const double step = step_at(value);
  std::vector<Values> losses{values(here.losses)};
  for (const double offset : {-step, -step / 4, step / 4, step}) {
    const std::optional<OpRun> beside = run_at(instance, i, element, value + offset);
    if (!beside) return std::nullopt;
    losses.push_back(values(beside->losses));
  }
  Values sums(losses.size());
  for (std::size_t n = 0; n < losses[0].size(); ++n) {
    const bool still = std::all_of(losses.begin(), losses.end(),
                                   [&](const Values& at) { return at[n] == losses[0][n]; });
    for (std::size_t place = 0; !still && place < sums.size(); ++place)
      sums[place] += losses[place][n];
  }
  return Around{sums[0], sums[1], sums[2], sums[3], sums[4]};
}

bool close(double a, double b, double relative) {
  return std::abs(a - b) <= relative * (1 + std::max(std::abs(a), std::abs(b)));
}

// The slope of a function on one side of a point, from two steps; nullopt unless these agree.
std::optional<double> slope(double here, double near, double far, double step) {
  const double fine = (near - here) / (step / 4), coarse = (far - here) / step;
  if (!close(fine, coarse, 1e-2)) return std::nullopt;
  return (4 * fine - coarse) / 3;
}

double gradient_of(const OpRun& run, std::size_t i, std::size_t element) {
  double sum = 0;
  if (run.grads[i].defined()) sum += values(run.grads[i])[element];
  for (const PerSampleGrad& use : run.uses[i]) sum += values(use.sum())[element];
  return sum;
}

// True if the loss has equal limits from both sides.
bool continuous(const Around& loss, double relative) {
  const double sides[] = {loss.below, loss.below_near, loss.above_near, loss.above};
  return std::all_of(std::begin(sides), std::end(sides), [&](double side) {
    return std::isfinite(side) && close(side, loss.above_near, relative);
  });
}

void check_gaps(const Instance& instance, std::size_t i, std::size_t element, double value,
                const OpRun& here) {
  const auto loss = around(instance, i, element, value, here);
  constexpr double gap = 1e-3;
  if (!loss || !continuous(*loss, gap)) return;
  check(close(loss->here, loss->above_near, gap),
        "input {} at {}: the loss is {} there, but {} and {} next to it", i, value, loss->here,
        loss->below_near, loss->above_near);
  if (!instance.inputs[i].wants_grad) return;
  const double step = step_at(value);
  const auto right = slope(loss->here, loss->above_near, loss->above, step),
             left = slope(loss->here, loss->below_near, loss->below, -step);
  if (!right || !left) return;
  const double gradient = gradient_of(here, i, element);
  const bool kink =
      !close(*left, *right, 1e-3);  // where the conventions of several operations meet
  check(std::isfinite(gradient), "input {} at {}: the gradient gives a slope of {}", i, value,
        gradient);
  if (kink) return;
  const double low = std::min(*left, *right), high = std::max(*left, *right);
  // Tolerance for the remaining curvature, and for the rounding of the loss over the smaller step.
  const double room =
      1e-5 * (1 + std::max(std::abs(low), std::abs(high))) + 1e-8 * std::abs(loss->here);
  check(gradient >= low - room && gradient <= high + room,
        "input {} at {}: the gradient gives a slope of {}, differences give {} and {}", i, value,
        gradient, *left, *right);
}

// Checks values that f32 can represent.
void check_near_single(const std::string& what, const Tensor& single, const Tensor& wide) {
  // Tolerance for intermediate values: cancellation costs them digits, overflow all of them.
  constexpr double max = 0x1p100, accuracy = 0x1p-7;
  const Values got = values(single), wanted = values(wide);
  double largest = 1;
  for (const double w : wanted) {
    if (!(std::abs(w) < max)) return;
    largest = std::max(largest, std::abs(w));
  }
  for (std::size_t k = 0; k < got.size(); ++k)
    check(std::abs(got[k] - wanted[k]) <= accuracy * largest,
          "{}: element {} is {} in single precision and {} in double", what, k, got[k], wanted[k]);
}

void check_single(const OpRun& single, const OpRun& wide, const std::string& where) {
  check_near_single(where + ": output", single.output, wide.output);
  for (std::size_t k = 0; k < wide.grads.size(); ++k) {
    const std::string what = fmt::format("{}: gradient of input {}", where, k);
    if (wide.grads[k].defined()) check_near_single(what, single.grads[k], wide.grads[k]);
    if (!wide.uses[k].empty())
      check_near_single(what, rows_of_uses(single.uses[k]), rows_of_uses(wide.uses[k]));
  }
}

void check_value(const Instance& instance, std::size_t i, std::size_t element, double value) {
  const std::optional<OpRun> wide = run_at(instance, i, element, value);
  if (!wide) return;
  check_gaps(instance, i, element, value, *wide);
  const OpRun single = run_case(with_element(instance, i, element, value), Dtype::f32);
  check_single(single, *wide, fmt::format("input {} at {}", i, value));
}

double pick(PublicRandom& random, const std::vector<double>& from) {
  return from[static_cast<std::size_t>(random.below(std::ssize(from)))];
}

// Half of the values are +-90, and half have sizes from 2 to 90, log-uniform and exact in f32.
// Beyond 88 an exponential exceeds the range of f32.
double far_value(PublicRandom& random) {
  constexpr double min = 2, max = 90, eighths = 8;
  const double size = min * std::pow(max / min, random.uniform());
  return pick(random, {-1, 1}) * pick(random, {max, std::ceil(size * eighths) / eighths});
}

}  // namespace

void check_far(const Instance& instance, PublicRandom& random) {
  for (std::size_t i = 0; i + 1 < instance.inputs.size(); ++i) {
    const OpInput& input = instance.inputs[i];
    if (!input.far || !is_float(input.value.dtype()) || input.value.numel() == 0) continue;
    const auto element = static_cast<std::size_t>(random.below(input.value.numel()));
    check_value(instance, i, element, pick(random, {0, 0, 1, -1}));
    check_value(instance, i, element, far_value(random));
  }
}

}  // namespace sotto::testing
