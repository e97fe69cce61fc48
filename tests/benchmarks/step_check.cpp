#include "tests/benchmarks/step_check.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "autograd/sink.h"
#include "core/io/safetensors.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {
namespace {

using Sums = std::map<const Parameter*, Tensor>;  // f64, on the model's device

Sums in_f64(const Gradients& gradients) {
  Sums sums;
  for (const auto& [parameter, sum] : gradients) sums[parameter] = to_dtype(sum, Dtype::f64);
  return sums;
}

// The samples' losses, and the gradient of their sum.
struct Step {
  Tensor losses;
  Sums sums;
};

Step ordinary_step(nn::Module& model, const models::Entry& entry, const models::Examples& samples,
                   Dtype precision) {
  Tape tape({.precision = precision});
  SumSink sink;
  const Var losses = entry.losses(model(tape.input(samples.inputs)), samples.labels);
  const Tensor values = losses.value();
  tape.backward(losses, sink);
  return {values, in_f64(sink.gradients())};
}

Sums private_sums(nn::Module& model, const models::Entry& entry, const models::Examples& samples,
                  Dtype precision, Clipper& clipper) {
  Tape tape({.private_data = true, .precision = precision});
  clipper.add(tape, entry.losses(model(tape.input(samples.inputs)), samples.labels));
  return in_f64(clipper.clipped_sums());
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

double product(const Tensor& x, const Tensor& y) { return sum(mul(x, y)).item(); }
double squared_length(const Tensor& x) { return product(x, x); }

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
    Sums gradient = ordinary_step(model, entry, copies_of(samples, n), precision).sums;
    for (auto& [parameter, values] : gradient)
      values = scale(values, 1 / static_cast<double>(count));
    const auto factors = factors_of(gradient, groups);
    for (const auto& [parameter, values] : gradient) {
      const Tensor& sum = expected.try_emplace(parameter, zeros_like(values)).first->second;
      axpby(groups.empty() ? 1 : factors.at(parameter), values, 1, sum);
    }
  }
  Sums got;
  if (groups.empty()) {
    got = ordinary_step(model, entry, samples, precision).sums;
  } else {
    Clipper clipper(groups, options, passes);
    got = private_sums(model, entry, samples, precision, clipper);
  }
  check(got.size() == expected.size(), "step_error: gradients of {} parameters, not of {}",
        got.size(), expected.size());
  double length = 0, common = 0, got_length = 0;  // squared, and the product of both
  for (const auto& [parameter, sum] : expected) {
    const Tensor& there = got.at(parameter);
    check(there.shape() == sum.shape(), "step_error: a gradient of shape {}, not {}", there.shape(),
          sum.shape());
    length += squared_length(sum);
    common += product(sum, there);
    got_length += squared_length(there);
  }
  const double shorter = groups.empty() ? 1 : std::clamp(common / length, 1 - max_shortening, 1.0);
  const double error = got_length - 2 * shorter * common + shorter * shorter * length;
  return std::sqrt(std::max(0.0, error) / length);
}

double write_reference(const std::string& path, nn::Module& model, const models::Entry& entry,
                       const models::Examples& samples, Dtype precision, double clip_bound) {
  const auto count = static_cast<double>(samples.inputs.size(0));
  const Step step = ordinary_step(model, entry, samples, precision);
  Clipper clipper(flat_group(model.parameters(), clip_bound), {}, ClipPasses::one);
  const Sums clipped = private_sums(model, entry, samples, precision, clipper);
  TensorFile file{.tensors = {{"inputs", samples.inputs}, {"labels", samples.labels}}};
  for (const auto& [name, parameter] : model.named_parameters()) {
    file.tensors["parameters/" + name] = parameter->value;
    file.tensors["clipped/" + name] = to_dtype(clipped.at(parameter), Dtype::f32);
    const double norm = std::sqrt(squared_length(step.sums.at(parameter))) / count;
    file.tensors["norms/" + name] = full({1}, norm, Dtype::f64);
  }
  const double loss = sum(to_dtype(step.losses, Dtype::f64)).item() / count;
  file.metadata = {{"loss", fmt::format("{}", loss)},
                   {"clip_bound", fmt::format("{}", clip_bound)}};
  save_safetensors(path, file);
  return loss;
}

}  // namespace sotto
