#include "nn/predict.h"

#include <algorithm>

#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/frozen.h"

namespace sotto::nn {

namespace {

// Returns the model's result for samples begin to end - 1.
using Results = std::function<Var(Tape& tape, std::int64_t begin, std::int64_t end)>;

Tensor in_batches(Module& model, std::int64_t n, std::int64_t batch, const Results& results) {
  check(n >= 1 && batch >= 1, "predict: {} samples in batches of {}", n, batch);
  const Frozen frozen(model);
  std::vector<Tensor> parts;
  for (std::int64_t begin = 0; begin < n; begin += batch) {
    const std::int64_t end = std::min(n, begin + batch);
    Tape tape({.training = false});
    const Var y = results(tape, begin, end);
    check(y.rank() > 0 && y.samples().batched() && y.samples().axis() == 0 &&
              y.shape()[0] == end - begin,
          "predict: a result {} for {} samples does not have one row for each", y.shape(),
          end - begin);
    parts.push_back(y.value().to(cpu));
  }
  return concat(parts, 0);
}

}  // namespace

Tensor predict(Module& model, const Tensor& inputs, std::int64_t batch) {
  check(inputs.defined() && inputs.rank() >= 1, "predict: inputs need a sample axis");
  const Device device = device_of(model);
  const auto results = [&](Tape& tape, std::int64_t begin, std::int64_t end) {
    return model(tape.input(inputs.slice(0, begin, end).to(device)));
  };
  return in_batches(model, inputs.size(0), batch, results);
}

Tensor predict(Module& model, const Dataset& data, const Forward& forward, std::int64_t batch) {
  const Device device = device_of(model);
  const auto results = [&](Tape& tape, std::int64_t begin, std::int64_t end) {
    return forward(tape, data.slice(begin, end).map([&](const Tensor& x) { return x.to(device); }));
  };
  return in_batches(model, data.size(), batch, results);
}

double accuracy(const Tensor& outputs, const Tensor& targets) {
  check(outputs.defined() && targets.defined() && targets.dtype() == Dtype::i64 &&
            targets.numel() > 0 && outputs.rank() == targets.rank() + 1,
        "accuracy: outputs {} for targets {} {}", outputs.shape(), targets.shape(),
        name(targets.dtype()));
  const Tensor found = argmax(outputs);
  check(found.shape() == targets.shape(), "accuracy: outputs {} for targets {} {}", outputs.shape(),
        targets.shape(), name(targets.dtype()));
  const auto ours = found.to_vector<std::int64_t>(), theirs = targets.to_vector<std::int64_t>();
  std::int64_t correct = 0;
  for (std::size_t k = 0; k < ours.size(); ++k) correct += ours[k] == theirs[k] ? 1 : 0;
  return static_cast<double>(correct) / static_cast<double>(ours.size());
}

double accuracy(Module& model, const Dataset& data, std::int64_t batch) {
  return accuracy(predict(model, data.inputs, batch), data.targets);
}

}  // namespace sotto::nn
