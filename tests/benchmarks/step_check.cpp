#include "tests/benchmarks/step_check.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {
namespace {

using Sums = std::map<const Parameter*, std::vector<double>>;

std::vector<double> numbers(const Tensor& x) {
  return to_dtype(contiguous(x.to(cpu)), Dtype::f64).to_vector<double>();
}

// The gradient of the sum of the samples' losses.
Sums ordinary_sums(nn::Module& model, const models::Entry& entry, const models::Examples& samples,
                   Dtype precision) {
  Tape tape({.precision = precision});
  SumSink sink;
  tape.backward(entry.losses(model(tape.input(samples.inputs)), samples.labels), sink);
  Sums sums;
  for (const auto& [parameter, sum] : sink.gradients()) sums[parameter] = numbers(sum);
  return sums;
}

Sums private_sums(nn::Module& model, const models::Entry& entry, const models::Examples& samples,
                  Dtype precision, Clipper& clipper) {
  Tape tape({.private_data = true, .precision = precision});
  clipper.add(tape, entry.losses(model(tape.input(samples.inputs)), samples.labels));
  Sums sums;
  for (const auto& [parameter, sum] : clipper.sums_for_tests()) sums[parameter] = numbers(sum);
  return sums;
}

// Sample `n` in each row of a batch of the same size, which the device multiplies by the same
// kernels as the batch: in 16 bits those of another size round differently, and a deep network
// spreads that through its layers.
models::Examples copies_of(const models::Examples& samples, std::int64_t n) {
  const auto copies = [&](const Tensor& x) {
    const std::vector<Tensor> parts(static_cast<std::size_t>(x.size(0)), x.slice(0, n, n + 1));
    return concat(parts, 0);
  };
  return {copies(samples.inputs), copies(samples.labels)};
}

double squared_length(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return sum;
}

// The clip factor of one sample's gradient, for each parameter.
std::map<const Parameter*, double> factors_of(const Sums& gradient,
                                              const std::vector<ClipGroup>& groups) {
  std::map<const Parameter*, double> factors;
  for (const ClipGroup& group : groups) {
    double square = 0;
    for (const Parameter* parameter : group.parameters) {
      const auto there = gradient.find(parameter);
      if (there != gradient.end()) square += squared_length(there->second);
    }
    for (const Parameter* parameter : group.parameters)
      factors[parameter] = std::min(1.0, group.bound / std::sqrt(square));
  }
  return factors;
}

}  // namespace

double step_error(nn::Module& model, const models::Entry& entry, const models::Examples& samples,
                  Dtype precision, const std::vector<ClipGroup>& groups, const ClipOptions& options,
                  ClipPasses passes) {
  Sums expected;
  const std::int64_t count = samples.inputs.size(0);
  for (std::int64_t n = 0; n < count; ++n) {
    Sums gradient = ordinary_sums(model, entry, copies_of(samples, n), precision);
    for (auto& [parameter, values] : gradient) {
      for (double& value : values) value /= static_cast<double>(count);
    }
    const auto factors = factors_of(gradient, groups);
    for (const auto& [parameter, values] : gradient) {
      std::vector<double>& sum = expected[parameter];
      sum.resize(values.size());
      const double factor = groups.empty() ? 1 : factors.at(parameter);
      for (std::size_t i = 0; i < values.size(); ++i) sum[i] += factor * values[i];
    }
  }
  Sums got;
  if (groups.empty()) {
    got = ordinary_sums(model, entry, samples, precision);
  } else {
    Clipper clipper(groups, options, passes);
    got = private_sums(model, entry, samples, precision, clipper);
  }
  check(got.size() == expected.size(), "step_error: gradients of {} parameters, not of {}",
        got.size(), expected.size());
  double error = 0, length = 0;
  for (auto& [parameter, sum] : expected) {
    length += squared_length(sum);
    const std::vector<double>& there = got.at(parameter);
    check(there.size() == sum.size(), "step_error: a gradient of {} numbers, not {}", there.size(),
          sum.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] -= there[i];
    error += squared_length(sum);
  }
  return std::sqrt(error / length);
}

}  // namespace sotto
