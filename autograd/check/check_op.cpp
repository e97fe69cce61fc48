#include "autograd/check/check_op.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "autograd/check/far_values.h"
#include "autograd/check/op_run.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::testing {

namespace {

std::vector<double> values(const Tensor& x) { return to_dtype(x, Dtype::f64).to_vector<double>(); }

bool same_bits(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = values(a), y = values(b);
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](double p, double q) {
    return std::bit_cast<std::uint64_t>(p) == std::bit_cast<std::uint64_t>(q);
  });
}

// The rounding error to expect, relative to the largest value.
double tolerance(Dtype dtype) {
  constexpr double sums = 32;
  return sums * (dtype == Dtype::f64 ? 0x1p-52 : 0x1p-23);
}

// Checks that y is within `factor` tolerances of its dtype, relative to the largest expected value.
void check_near(const std::string& what, const Tensor& y, const Tensor& expected, double factor) {
  check(y.shape() == expected.shape(), "{}: shape {} where {} is expected", what, y.shape(),
        expected.shape());
  const std::vector<double> got = values(y), wanted = values(expected);
  double largest = 1;
  for (const double v : wanted) largest = std::max(largest, std::abs(v));
  for (std::size_t k = 0; k < got.size(); ++k) {
    check(std::abs(got[k] - wanted[k]) <= factor * tolerance(y.dtype()) * largest,
          "{}: element {} is {} where {} is expected", what, k, got[k], wanted[k]);
  }
}

std::string input_name(const Instance& instance, std::size_t i) {
  // The last input is the weights of the loss.
  const std::size_t inputs = instance.inputs.size() - 1;
  return i < inputs ? fmt::format("input {}", i) : fmt::format("parameter {}", i - inputs);
}

double total_loss(const Instance& instance) {
  double sum = 0;
  for (const double loss : values(run_case(instance, Dtype::f64).losses)) sum += loss;
  return sum;
}

// The sum of products of elements, in row-major order.
double inner(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = values(a), y = values(b);
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// The derivative of the total loss as `x`, which the instance reads, moves along `direction`.
double difference_quotient(const Instance& instance, Tensor& x, const Tensor& direction) {
  constexpr double step = 1e-6;
  const Tensor here = x, wide = to_dtype(x, Dtype::f64);
  x = add(wide, scale(direction, step));
  const double above = total_loss(instance);
  x = sub(wide, scale(direction, step));
  const double below = total_loss(instance);
  x = here;
  return (above - below) / (2 * step);
}

void check_derivative(Instance instance, PublicRandom& random) {
  const OpRun run = run_case(instance, Dtype::f64);
  const std::size_t inputs = instance.inputs.size() - 1;
  for (std::size_t i = 0; i < inputs + instance.parameters.size(); ++i) {
    const bool argument = i < inputs;
    Parameter* parameter = argument ? nullptr : instance.parameters[i - inputs];
    if (argument ? !instance.inputs[i].wants_grad : !parameter->trainable) continue;
    Tensor& x = argument ? instance.inputs[i].value : parameter->value;
    const Tensor direction = uniform_values(random, x.shape(), -1, 1);
    double gradient = 0;
    if (argument && run.grads[i].defined()) gradient = inner(run.grads[i], direction);
    for (const PerSampleGrad& use : run.uses[i]) gradient += inner(use.sum(), direction);
    // The truncation error is 1e-12 of the third derivatives, the rounding error 1e-10 of the loss.
    constexpr double accuracy = 2e-7;
    const double found = difference_quotient(instance, x, direction);
    check(std::abs(found - gradient) <= accuracy * (1 + std::abs(gradient)),
          "{}: the gradient gives a slope of {}, differences give {}", input_name(instance, i),
          gradient, found);
  }
}

void check_alone_within(const Instance& instance, std::int64_t n, Dtype dtype, double factor) {
  const OpRun run = run_case(instance, dtype);
  const OpRun alone = run_case(samples_between(instance, n, n + 1), dtype, n);
  check_near("output", run.losses.slice(0, n, n + 1), alone.losses, factor);
  for (std::size_t i = 0; i < run.uses.size(); ++i) {
    const std::string what = "gradient of " + input_name(instance, i);
    check(run.uses[i].empty() == alone.uses[i].empty(),
          "{} is not defined both for the batch and for the sample alone", what);
    if (!run.uses[i].empty())
      check_near(what, rows_of_uses(run.uses[i]).slice(0, n, n + 1), rows_of_uses(alone.uses[i]),
                 factor);
  }
  for (std::size_t i = 0; i < run.grads.size(); ++i) {
    if (!run.grads[i].defined()) continue;
    const int axis = instance.inputs[i].samples.axis();
    check_near("gradient of " + input_name(instance, i), run.grads[i].slice(axis, n, n + 1),
               alone.grads[i], factor);
  }
}

void check_alone(const Instance& instance, PublicRandom& random) {
  check_alone_within(instance, random.below(samples_of(instance)), Dtype::f64, 1);
}

// Checks equality in every bit: otherwise the gradient of one sample would depend on the other
// samples.
void check_alone_exactly(const Instance& instance, PublicRandom& random) {
  const std::int64_t n = random.below(samples_of(instance));
  for (const Dtype dtype : {Dtype::f64, Dtype::f32}) check_alone_within(instance, n, dtype, 0);
}

// Checks that no argument's rows get into a result that all samples share.
void check_rows_of_samples(const Instance& instance, PublicRandom&) {
  for (std::size_t i = 0; i + 1 < instance.inputs.size(); ++i) {
    if (!instance.inputs[i].samples.batched()) continue;
    Instance beside_shared = instance;
    for (std::size_t k = 0; k + 1 < instance.inputs.size(); ++k) {
      if (k != i) beside_shared.inputs[k].samples = SampleAxis::shared();
    }
    std::optional<SampleAxis> samples;
    try {
      samples = samples_of_result(beside_shared);
    } catch (const std::invalid_argument&) {
      continue;  // refused, as Tape::check_plain_rows() does
    }
    check(!samples->is_shared(), "input {} has a row for each sample, and the result none", i);
  }
}

void check_empty(const Instance& instance, PublicRandom&) {
  const OpRun run = run_case(samples_between(instance, 0, 0), Dtype::f64);
  check(run.losses.numel() == 0, "{} losses", run.losses.numel());
  for (std::size_t i = 0; i < run.uses.size(); ++i) {
    for (const PerSampleGrad& use : run.uses[i]) {
      const std::string what = "gradient of " + input_name(instance, i);
      check(use.samples() == 0, "{}: {} rows", what, use.samples());
      check_near(what, use.sum(), zeros(use.shape(), Dtype::f64), 0);
    }
  }
}

// A copy of the instance with sample n of every floating-point batched input replaced.
Instance with_sample(const Instance& instance, std::int64_t n,
                     const std::function<double()>& value) {
  Instance changed = instance;
  for (OpInput& input : changed.inputs) {
    if (!input.samples.batched() || !is_float(input.value.dtype())) continue;
    input.value = clone(input.value);
    const Tensor sample = input.value.slice(input.samples.axis(), n, n + 1);
    std::vector<double> fresh(static_cast<std::size_t>(sample.numel()));
    for (double& v : fresh) v = value();
    copy_into(Tensor::from(fresh, sample.shape()), sample);
  }
  return changed;
}

// Checks that all values of sample n have equal bits in both runs.
void check_same_sample(const OpRun& a, const OpRun& b, const Instance& instance, std::int64_t n) {
  const auto check_row = [n](const std::string& what, const Tensor& x, const Tensor& y,
                             int axis = 0) {
    check(same_bits(x.slice(axis, n, n + 1), y.slice(axis, n, n + 1)), "{} of sample {} changed",
          what, n);
  };
  check_row("loss", a.losses, b.losses);
  for (std::size_t i = 0; i < a.uses.size(); ++i) {
    if (!a.uses[i].empty())
      check_row("gradient of " + input_name(instance, i), rows_of_uses(a.uses[i]),
                rows_of_uses(b.uses[i]));
  }
  for (std::size_t i = 0; i < a.grads.size(); ++i) {
    if (a.grads[i].defined())
      check_row("gradient of " + input_name(instance, i), a.grads[i], b.grads[i],
                instance.inputs[i].samples.axis());
  }
  const bool batched = std::any_of(instance.inputs.begin(), instance.inputs.end() - 1,
                                   [](const OpInput& x) { return x.samples.batched(); });
  if (batched) check_row("output", a.output, b.output);
}

void check_independence(const Instance& instance, PublicRandom& random) {
  const std::int64_t n = samples_of(instance);
  if (n < 2) return;
  const std::int64_t kept = random.below(n);
  const std::int64_t other = (kept + 1 + random.below(n - 1)) % n;
  const std::vector<std::function<double()>> changes{[&] { return random.uniform(); },
                                                     [] { return std::nan(""); },
                                                     [] { return HUGE_VAL; }, [] { return 1e30; }};
  for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
    const OpRun before = run_case(instance, dtype);
    for (const auto& change : changes)
      check_same_sample(before, run_case(with_sample(instance, other, change), dtype), instance,
                        kept);
  }
}

void check_products(const PerSampleGrad& f, const PerSampleGrad& g, const std::string& what) {
  const Shape flat{f.samples(), f.shape().numel()};
  const Tensor expected =
      sum(mul(reshape(f.materialize(), flat), reshape(g.materialize(), flat)), {1});
  // A Gram product sums one term per pair of positions.
  constexpr double factor = 8;
  for (const NormMethod norm_method :
       {NormMethod::automatic, NormMethod::ghost, NormMethod::materialize})
    check_near(what + ": product", dot(f, g, norm_method), expected, factor);
}

void check_per_sample(const Instance& instance, PublicRandom& random) {
  const OpRun run = run_case(instance, Dtype::f64);
  for (std::size_t i = 0; i < run.uses.size(); ++i) {
    const std::string what = "gradient of " + input_name(instance, i);
    for (const PerSampleGrad& f : run.uses[i]) {
      const Tensor rows = f.materialize();
      check(f.samples() == samples_of(instance), "{}: {} rows for {} samples", what, f.samples(),
            samples_of(instance));
      const Tensor w = uniform_values(random, {f.samples()}, -1, 1);
      Shape column = Shape::filled(rows.rank(), 1);
      column[0] = f.samples();
      check_near(what + ": weighted sum", f.sum(w), sum(mul(rows, reshape(w, column)), {0}), 1);
      check_near(what + ": sum", f.sum(), sum(rows, {0}), 1);
      for (const PerSampleGrad& g : run.uses[i]) check_products(f, g, what);
    }
  }
}

void check_single(const Instance& instance, PublicRandom&) {
  const OpRun wide = run_case(instance, Dtype::f64);
  const OpRun run = run_case(instance, Dtype::f32);
  // An op may consist of several kernels, and quotients and roots amplify errors.
  constexpr double factor = 16;
  check_near("output", run.output, wide.output, factor);
  for (std::size_t i = 0; i < run.uses.size(); ++i) {
    if (!run.uses[i].empty())
      check_near("gradient of " + input_name(instance, i), rows_of_uses(run.uses[i]),
                 rows_of_uses(wide.uses[i]), factor);
  }
  for (std::size_t i = 0; i < run.grads.size(); ++i) {
    if (run.grads[i].defined())
      check_near("gradient of " + input_name(instance, i), run.grads[i], wide.grads[i], factor);
  }
}

struct Law {
  const char* text;
  void (*check)(const Instance& instance, PublicRandom& random);
  bool exact = false;  // only checked on a CPU
};

constexpr Law laws[] = {
    {"gradients are derivatives",
     [](const Instance& i, PublicRandom& r) { check_derivative(i, r); }},
    {"a sample run alone gives equal results", check_alone},
    {"a sample run alone gives bit-equal results", check_alone_exactly, true},
    {"rows beside shared arguments make rows or are refused", check_rows_of_samples},
    {"an empty batch passes", check_empty},
    {"other samples change no bit", check_independence},
    {"sums and products are those of materialized gradients", check_per_sample},
    {"single precision agrees with double", check_single},
    {"value and gradient have no gaps at far and special values", check_far},
};

std::string description(const Instance& instance) {
  std::string shapes;
  for (const OpInput& x : instance.inputs) {
    if (&x == &instance.inputs.back()) break;
    const std::string samples =
        x.samples.batched() ? fmt::format("samples along {}", x.samples.axis()) : "shared";
    shapes += fmt::format("{}{} {}", shapes.empty() ? "" : ", ", x.value.shape(), samples);
  }
  return shapes;
}

// The instance with every argument shared, so that the gradients of all samples pass through the
// function's own backward.
Instance all_shared(Instance instance) {
  for (OpInput& input : instance.inputs) {
    input.wants_grad = input.wants_grad && is_float(input.value.dtype());
    input.samples = SampleAxis::shared();
  }
  return instance;
}

void check_laws(const OpCase& op, int number, const Instance& instance, PublicRandom& random,
                bool exact) {
  for (const Law& law : laws) {
    try {
      if (exact || !law.exact) law.check(instance, random);
    } catch (const std::exception& error) {
      fail(fmt::format("check_op: {} ({}): \"{}\" does not hold for instance {}, {}: {}", op.op,
                       op.what, law.text, number, description(instance), error.what()));
    }
  }
}

}  // namespace

void check_op(const OpCase& op, const CheckOptions& options) {
  check(options.instances > 0, "check_op: {} instances", options.instances);
  PublicRandom random(options.seed);
  std::int64_t samples = 0;
  for (int i = 0; i < options.instances; ++i) {
    const Instance instance = op.make(random), whole = with_loss(instance, random);
    samples = std::max(samples, samples_of(whole));
    check_laws(op, i, whole, random, options.exact);
    std::optional<Instance> shared;
    try {
      shared = with_loss(all_shared(instance), random);
    } catch (const std::invalid_argument&) {
      continue;  // the function takes batched arguments only
    }
    check_laws(op, i, *shared, random, options.exact);
  }
  check(samples >= 2,
        "check_op: {} ({}): at most {} samples in {} instances; the laws need two "
        "or more samples",
        op.op, op.what, samples, options.instances);
}

Tensor uniform_values(PublicRandom& random, const Shape& shape, double low, double high) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (double& value : values) value = low + (high - low) * random.uniform();
  return Tensor::from(values, shape);
}

}  // namespace sotto::testing
