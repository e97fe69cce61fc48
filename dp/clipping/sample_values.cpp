#include "dp/clipping/sample_values.h"

#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"
#include "dp/clipping/unit_norms.h"
#include "dp/clipping/unit_sink.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// Runs backward into a sink whose results leave only as values of their own samples, so that it
// bounds what a sample influences: those values, and no others.
void visit_gradients(const Var& losses, UnitSink::Take take) {
  check(losses.samples().batched() && losses.rank() == 1,
        "gradient of each sample: losses {} are not one of each", losses.shape());
  UnitSink sink(nullptr, losses.shape()[0], std::move(take));
  losses.tape().backward(losses, sink, 1, Tape::Keep::graph);
}

Var as_value(const Var& losses, const Tensor& numbers) {
  const Tensor& like = losses.value();
  return losses.tape().input(to_dtype(numbers, like.dtype()).to(like.device()));
}

}  // namespace

Var gradient_products(const Var& losses, const Gradients& v) {
  DirectionSink products(v);
  visit_gradients(losses, [&](Parameter& parameter, const std::vector<PerSampleGrad>& uses) {
    products.receive(parameter, uses);
  });
  const bool none = !products.products().defined();
  return as_value(losses, none ? zeros_like(losses.value()) : products.products());
}

Var clip_factors(const Var& losses, const ClipGroup& group, const ClipRule& rule) {
  UnitNorms norms(losses.shape().numel());
  visit_gradients(losses, [&](Parameter& parameter, const std::vector<PerSampleGrad>& uses) {
    if (group.find(parameter)) norms.add(uses, NormMethod::automatic, 1);
  });
  const auto factors = norms.factors(rule, group.bound, rounding_margin(group), 1).values;
  return as_value(losses, Tensor::from(factors, {std::ssize(factors)}));
}

}  // namespace sotto
