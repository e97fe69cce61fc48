#include "autograd/backward_pass.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string_view>

#include "autograd/adjoint.h"
#include "autograd/memory_labels.h"
#include "autograd/per_sample/forms.h"
#include "autograd/per_sample/inner_products.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "core/allocator/allocator.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::detail {

namespace {

// The sink of a pass that computes the gradients of one node.
class UnusedSink final : public GradSink {
 public:
  void receive(Parameter&, std::vector<PerSampleGrad>) override {}
};

// A tensor for `samples` rows like those of x.
Tensor empty_for(const Tensor& x, std::int64_t samples) {
  Shape shape = x.shape();
  shape[0] = samples;
  return Tensor::empty(shape, x.dtype(), x.device());
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
    : nodes_(nodes),
      sample_count_(sample_count),
      sink_(sink),
      cotangents_(nodes.size()),
      first_bytes_(allocator(cpu).statistics().current) {}

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

void Cotangent::add_use(const PerSampleGrad& use) {
  const auto rows = [](const PerSampleGrad& g) {
    return g.form_data().as<Dense>() || g.form_data().as<Derived>();
  };
  const bool together =
      !uses.empty() && rows(uses.back()) && rows(use) && uses.back().samples() == use.samples();
  if (!together) return uses.push_back(use);
  uses.back() = uses.back().with_rows(use);
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
    Cotangent& target = cotangent(node.inputs[0]);
    for (const PerSampleGrad& use : uses) target.add_use(node.pull_back(use));
    return;
  }
  if (pull_derived(index, uses)) return;
  Tensor rows = sums_only() ? sum_of_uses(uses).unsqueeze(0) : rows_of_uses(uses);
  rows = to_dtype(rows, node.dtype);
  const std::vector<Tensor> gradients = pulled(index, std::move(rows));
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined())
      cotangent(node.inputs[i]).add_use(PerSampleGrad::materialized(gradients[i]));
  }
}

// True if only ops with a pull_back lie between the value and a parameter.
bool BackwardPass::is_of_parameter(const Var& x) const {
  int at = x.index_;
  while (node(at).pull_back) at = node(at).inputs[0].index_;
  return node(at).parameter != nullptr;
}

// Returns by input whether its gradients are to be computed from those of the result whenever they
// are read: where they would wait for others in a sink, take more bytes than the result's, and do
// not fit below 9/8 of the memory in use when the pass began. Both ways give the same bits.
std::vector<char> BackwardPass::derived_inputs(int index,
                                               const std::vector<PerSampleGrad>& uses) const {
  const TapeNode& node = this->node(index);
  std::vector<char> derived(node.inputs.size());
  const std::int64_t n = uses[0].samples();
  if (!sink_.keeps() || sums_only() || !node.self_contained || n == 0 || uses[0].device() != cpu)
    return derived;
  std::size_t bytes = 0;
  for (const PerSampleGrad& use : uses) {
    if (use.samples() != n) return derived;
    bytes += use.bytes();
  }
  const std::size_t limit = first_bytes_ + first_bytes_ / 8,
                    room = limit - std::min(limit, allocator(cpu).statistics().current);
  std::set<int> seen;
  for (std::size_t i = 0; i < derived.size(); ++i) {
    const Var& x = node.inputs[i];
    if (x.index_ < 0 || !seen.insert(x.index_).second || !is_of_parameter(x)) continue;
    const auto of_rows = static_cast<std::size_t>(n * x.shape().numel()) * size_of(x.dtype());
    derived[i] = arithmetic_type(x.dtype()) == x.dtype() && of_rows > std::max(bytes, room);
  }
  return derived;
}

// The node, behind leaves in the place of its inputs.
std::vector<TapeNode> BackwardPass::with_leaves(int index) const {
  std::vector<TapeNode> nodes;
  std::map<int, int> places;
  TapeNode copy = node(index);
  for (Var& x : copy.inputs) {
    if (x.index_ < 0) continue;
    const TapeNode& input = node(x.index_);
    const auto [place, is_new] = places.try_emplace(x.index_, static_cast<int>(nodes.size()));
    if (is_new) nodes.push_back({.name = input.name, .shape = input.shape, .dtype = input.dtype});
    x.index_ = place->second;
  }
  nodes.push_back(std::move(copy));
  return nodes;
}

// Gradients of derived_inputs() are passed on as functions of the result's, with their squared
// norms: other inputs' gradients are materialized, so that all have to be computed once. Returns
// false, without any effect, if no input is derived.
bool BackwardPass::pull_derived(int index, const std::vector<PerSampleGrad>& uses) {
  const std::vector<char> derived = derived_inputs(index, uses);
  if (std::ranges::count(derived, true) == 0) return false;
  const auto nodes = std::make_shared<std::vector<TapeNode>>(with_leaves(index));
  const auto pull = [nodes](Tensor rows) {
    UnusedSink sink;
    rows = to_dtype(rows, nodes->back().dtype);
    return BackwardPass(*nodes, -1, sink)
        .pulled(static_cast<int>(nodes->size()) - 1, std::move(rows));
  };
  std::vector<Tensor> kept(derived.size());  // gradients, or their squared norms
  for_each_rows(uses, [&](Tensor rows, std::int64_t begin, std::int64_t end) {
    const std::vector<Tensor> gradients = pull(std::move(rows));
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const Tensor part = derived[i] ? squared_norms(gradients[i]) : gradients[i];
      if (!kept[i].defined()) kept[i] = empty_for(part, uses[0].samples());
      copy_into(part, kept[i].slice(0, begin, end));
    }
  });
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i].defined()) continue;
    const Var& x = node(index).inputs[i];
    const auto of_input = [pull, i](Tensor rows) { return contiguous(pull(std::move(rows))[i]); };
    cotangent(x).add_use(derived[i] ? PerSampleGrad(Derived{uses, of_input, x.shape(), x.dtype()},
                                                    x.shape(), {.squares = kept[i]})
                                    : PerSampleGrad::materialized(kept[i]));
  }
  return true;
}

// For a batch without samples the results are empty, for any op.
std::vector<Tensor> BackwardPass::pulled(int index, Tensor rows) {
  const TapeNode& node = this->node(index);
  const std::int64_t n = rows.size(0);
  std::vector<Tensor> gradients(node.inputs.size());
  if (node.batchable) {
    Adjoint adjoint(*this, index, n);
    node.backward(rows, adjoint);
    take_values(node, gradients);
  } else {
    gradients = pulled_one_by_one(index, rows);
  }
  for (std::size_t i = 0; n == 0 && i < gradients.size(); ++i) {
    const Var& input = node.inputs[i];
    Shape shape = input.shape();
    shape.insert(0, 0);
    if (input.index_ >= 0 && !gradients[i].defined()) gradients[i] = zeros(shape, node.dtype);
  }
  return gradients;
}

std::vector<Tensor> BackwardPass::pulled_one_by_one(int index, const Tensor& rows) {
  const TapeNode& node = this->node(index);
  std::vector<std::vector<Tensor>> parts(node.inputs.size());
  std::vector<Tensor> one(parts.size()), gradients(parts.size());
  for (std::int64_t n = 0; n < rows.size(0); ++n) {
    Adjoint adjoint(*this, index);
    node.backward(rows.select(0, n), adjoint);
    take_values(node, one);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (one[i].defined()) parts[i].push_back(std::exchange(one[i], Tensor()).unsqueeze(0));
    }
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].empty()) gradients[i] = concat(parts[i], 0);
  }
  return gradients;
}

// An input that was passed twice has its gradient in the first place.
void BackwardPass::take_values(const TapeNode& node, std::vector<Tensor>& gradients) {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (node.inputs[i].index_ >= 0)
      gradients[i] = std::exchange(cotangent(node.inputs[i]).value, Tensor());
  }
}

}  // namespace sotto::detail
