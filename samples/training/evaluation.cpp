#include "samples/training/evaluation.h"

#include <vector>

#include <sotto/kernels/tensor_ops/tensor_ops.h>
#include <sotto/memory/physical_batches.h>

namespace sotto::samples {

Tensor outputs_of(nn::Module& model, const Dataset& data, const Forward& forward) {
  constexpr std::int64_t max_part = 500;
  const std::vector<Parameter*> parameters = model.parameters();
  const Device device = parameters.empty() ? cpu : parameters.front()->value.device();
  std::vector<Tensor> parts;
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    const auto there = [device](const Tensor& x) { return x.to(device); };
    Tape tape({.training = false});
    parts.push_back(forward(tape, data.slice(begin, end).map(there)).value().to(cpu));
  };
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(data.size()), 1);
  memory::PhysicalBatches(max_part).over(rows, run, [] { return false; });
  return concat(parts, 0);
}

Tensor outputs_of(nn::Module& model, const Dataset& data) {
  return outputs_of(
      model, data, [&](Tape& tape, const Dataset& part) { return model(tape.input(part.inputs)); });
}

}  // namespace sotto::samples
