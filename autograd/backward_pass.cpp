#include "autograd/backward_pass.h"

#include <string_view>

#include "autograd/adjoint.h"
#include "autograd/memory_labels.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::detail {

namespace {

// Returns the gradients of all uses of a shared value, added up: [n, ...shape]. If only sums are
// needed, n is 1.
Tensor materialized_sum(const std::vector<PerSampleGrad>& uses, bool sums_only) {
  Tensor y;
  for (const PerSampleGrad& use : uses) {
    const Tensor part = sums_only ? use.sum().unsqueeze(0) : use.materialize();
    check(!y.defined() || y.size(0) == part.size(0),
          "backward: a shared value is used with {} samples and with {} samples",
          y.defined() ? y.size(0) : 0, part.size(0));
    y = y.defined() ? add(y, part) : part;
  }
  return y;
}

}  // namespace

bool takes_padding(const TapeNode& node) { return std::string_view(node.name) == "linear"; }

void add_to(Tensor& total, const Tensor& part) {
  if (!total.defined()) {
    total = part;
  } else if (part.numel() == 0) {
    return;
  } else if (total.sole() && total.is_dense() && total.shape() == part.shape() &&
             total.dtype() == part.dtype()) {
    axpby(1, part, 1, total);
  } else {
    total = add(total, part);
  }
}

BackwardPass::BackwardPass(std::vector<TapeNode>& nodes, std::int64_t sample_count, GradSink& sink)
    : nodes_(nodes), sample_count_(sample_count), sink_(sink), cotangents_(nodes.size()) {}

void BackwardPass::start(const Var& y, const Tensor& dy) {
  if (y.index_ < 0 || !dy.defined()) return;
  if (y.samples().is_shared())
    cotangent(y).uses.push_back(PerSampleGrad::materialized(dy));
  else
    add_to(cotangent(y).value, dy);
}

void BackwardPass::run(bool drop) {
  for (int index = static_cast<int>(nodes_.size()) - 1; index >= 0; --index) {
    visit(index);
    cotangents_.pop_back();
    if (drop) nodes_.pop_back();
  }
}

void BackwardPass::deliver(Parameter& parameter, int node) {
  while (this->node(node).parameter != &parameter) --node;
  sink_.receive(parameter, cotangent(node).take_uses());
}

std::vector<PerSampleGrad> Cotangent::take_uses() {
  if (sum.defined())
    uses.push_back(PerSampleGrad::materialized(std::exchange(sum, Tensor()).unsqueeze(0)));
  return std::exchange(uses, {});
}

void BackwardPass::visit(int index) {
  const TapeNode& node = this->node(index);
  Cotangent& cotangent = this->cotangent(index);
  const LabelScope scope = backward_scope(node.name, node.module);
  if (node.parameter) {
    std::vector<PerSampleGrad> uses = cotangent.take_uses();
    if (!uses.empty()) sink_.receive(*node.parameter, std::move(uses));
    return;
  }
  if (node.wants_grad) {
    for (const PerSampleGrad& use : cotangent.take_uses()) add_to(cotangent.value, use.sum());
    if (cotangent.value.defined()) grads_.emplace_back(index, cotangent.value);
    return;
  }
  if (node.samples.is_shared()) return pull_back(index);
  if (!cotangent.value.defined()) return;
  Adjoint adjoint(*this, index);
  node.backward(cotangent.value, adjoint);
}

// An op with a pull_back takes the gradients in their form; for any other op they are materialized.
// Pulling back is linear: if only sums are needed, the sum is pulled back as one sample's gradient.
void BackwardPass::pull_back(int index) {
  const std::vector<PerSampleGrad> uses = cotangent(index).take_uses();
  if (uses.empty()) return;
  const TapeNode& node = this->node(index);
  if (node.pull_back) {
    auto& target = cotangent(node.inputs[0]).uses;
    for (const PerSampleGrad& use : uses) target.push_back(node.pull_back(use));
    return;
  }
  const Tensor gradients = to_dtype(materialized_sum(uses, sums_only()), node.dtype);
  if (node.batchable || gradients.size(0) == 0) {
    pull_together(node, index, gradients);
  } else {
    pull_each(node, index, gradients);
  }
}

// Pulls all samples back in one call. For a batch without samples the result is empty, for any op.
void BackwardPass::pull_together(const TapeNode& node, int index, const Tensor& gradients) {
  if (node.batchable) {
    Adjoint adjoint(*this, index, gradients.size(0));
    node.backward(gradients, adjoint);
  }
  for (const Var& input : node.inputs) {
    if (input.index_ < 0) continue;
    Cotangent& target = cotangent(input);
    if (target.value.defined()) {
      target.uses.push_back(PerSampleGrad::materialized(std::exchange(target.value, Tensor())));
    } else if (gradients.size(0) == 0) {
      Shape shape = input.shape();
      shape.insert(0, 0);
      target.uses.push_back(PerSampleGrad::materialized(zeros(shape, node.dtype)));
    }
  }
}

void BackwardPass::pull_each(const TapeNode& node, int index, const Tensor& gradients) {
  std::vector<std::vector<Tensor>> parts(node.inputs.size());
  for (std::int64_t n = 0; n < gradients.size(0); ++n) {
    Adjoint adjoint(*this, index);
    node.backward(gradients.select(0, n), adjoint);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (node.inputs[i].index_ < 0) continue;
      Tensor& value = cotangent(node.inputs[i]).value;
      if (value.defined()) parts[i].push_back(std::exchange(value, Tensor()).unsqueeze(0));
    }
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty()) continue;
    cotangent(node.inputs[i]).uses.push_back(PerSampleGrad::materialized(concat(parts[i], 0)));
  }
}

}  // namespace sotto::detail
