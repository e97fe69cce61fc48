// Pulls a shared value's per-sample gradient back to the parameters from which it was computed.
#include "autograd/tape.h"

#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

// The sum of all uses of a shared value: per sample, or summed over samples if sums_only_.
Tensor Tape::rows_of(const std::vector<PerSampleGrad>& uses) const {
  Tensor rows;
  for (const PerSampleGrad& use : uses) {
    const Tensor part = sums_only_ ? use.sum().unsqueeze(0) : use.materialize();
    check(!rows.defined() || rows.size(0) == part.size(0),
          "backward: a shared value is used with {} samples and with {} samples",
          rows.defined() ? rows.size(0) : 0, part.size(0));
    rows = rows.defined() ? add(rows, part) : part;
  }
  return rows;
}

// Pulls back a shared value computed from parameters: the per-sample gradient keeps its form if the
// op has a pull-back, else it is materialized. (The pull-back is linear, so a sum over samples may
// pass as one row.)
void Tape::pull_back(int index) {
  const std::vector<PerSampleGrad> uses = cotangents_[static_cast<std::size_t>(index)].take_rows();
  if (uses.empty()) return;
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  if (node.pull_back) {
    auto& target = cotangents_[static_cast<std::size_t>(node.inputs[0].index_)].rows;
    for (const PerSampleGrad& use : uses) target.push_back(node.pull_back(use));
    return;
  }
  const Tensor rows = to_dtype(rows_of(uses), node.dtype);
  if (node.batchable || rows.size(0) == 0) {
    pull_rows(index, rows);
  } else {
    pull_each_row(index, rows);
  }
}

// Pulls back all per-sample gradients in one call. An empty batch may pass any op.
void Tape::pull_rows(int index, const Tensor& rows) {
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  if (node.batchable) {
    Adjoint adjoint(*this, index, rows.size(0));
    node.backward(rows, adjoint);
  }
  for (const Var& input : node.inputs) {
    if (input.index_ < 0) continue;
    Cotangent& target = cotangents_[static_cast<std::size_t>(input.index_)];
    if (target.value.defined()) {
      target.rows.push_back(PerSampleGrad::materialized(std::exchange(target.value, Tensor())));
    } else if (rows.size(0) == 0) {
      Shape shape = input.shape();
      shape.insert(0, 0);
      target.rows.push_back(PerSampleGrad::materialized(zeros(shape, node.dtype)));
    }
  }
}

void Tape::pull_each_row(int index, const Tensor& rows) {
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  std::vector<std::vector<Tensor>> parts(node.inputs.size());
  for (std::int64_t n = 0; n < rows.size(0); ++n) {
    Adjoint adjoint(*this, index);
    node.backward(rows.select(0, n), adjoint);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (node.inputs[i].index_ < 0) continue;
      Tensor& value = cotangents_[static_cast<std::size_t>(node.inputs[i].index_)].value;
      if (value.defined()) parts[i].push_back(std::exchange(value, Tensor()).unsqueeze(0));
    }
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty()) continue;
    auto& target = cotangents_[static_cast<std::size_t>(node.inputs[i].index_)].rows;
    target.push_back(PerSampleGrad::materialized(concat(parts[i], 0)));
  }
}

}  // namespace sotto
