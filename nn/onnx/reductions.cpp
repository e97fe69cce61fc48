// Operators of reductions, softmax and normalisation.
#include <limits>
#include <numeric>

#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/onnx/operators.h"

namespace sotto::nn::onnx {

namespace {

constexpr std::int64_t keep = 1;

Converter softmax(const char* op) {
  return [op](const Call& call) {
    return call.graph.add(op, {call.in(0)}, {{"axis", call.integer("axis")}});
  };
}

std::string sum(const Call& call) {
  return call.graph.add("ReduceSum", {call.in(0), call.graph.list(call.list("axes"))},
                        {{"keepdims", call.integer("keepdim")}});
}

std::string norm(const Call& call) {
  return call.graph.add("ReduceL2", {call.in(0)},
                        {{"axes", call.list("axes")}, {"keepdims", call.integer("keepdim")}});
}

std::string max(const Call& call) {
  return call.graph.add("ReduceMax", {call.in(0)},
                        {{"axes", call.list("axes")}, {"keepdims", keep}});
}

std::string map_axis(const Call& call) {
  Graph& g = call.graph;
  const int rank = call.result().rank(), axis = static_cast<int>(call.integer("axis"));
  const NodeAttributes exchange{{"perm", exchanged_axes(rank, axis, rank - 1)}};
  const std::string matrix = g.constant(call.get<Tensor>("matrix").transpose(0, 1)),
                    rows = g.add("MatMul", {g.add("Transpose", {call.in(0)}, exchange), matrix});
  return g.add("Transpose", {rows}, exchange);
}

// Weight or bias of a normalisation, in the shape in which they broadcast to the result.
std::string affine(const Call& call, std::size_t input) {
  const Ints shape = call.list("affine");
  if (Shape(shape) == call.shape(input)) return call.in(input);
  return call.graph.add("Reshape", {call.in(input), call.graph.list(shape)});
}

// x / sqrt(mean(x^2) + eps) over the axes from `rows`.
std::string by_root_mean_square(const Call& call) {
  Graph& g = call.graph;
  Ints axes(static_cast<std::size_t>(call.shape().rank() - call.integer("rows")));
  std::iota(axes.begin(), axes.end(), call.integer("rows"));
  const std::string x = call.in(0), square = g.add("Mul", {x, x}),
                    mean = g.add("ReduceMean", {square}, {{"axes", axes}, {"keepdims", keep}}),
                    sum = g.add("Add", {mean, g.number(call.number("eps"))});
  return g.add("Div", {x, g.add("Sqrt", {sum})});
}

// Each group as a channel of an InstanceNormalization.
std::string by_groups(const Call& call) {
  Graph& g = call.graph;
  const std::int64_t groups = call.integer("groups"),
                     n = call.samples().batched() ? -1 : call.shape()[0];
  const std::int64_t each = call.shape().numel() / (call.shape()[0] * groups);
  const std::string rows = g.add("Reshape", {call.in(0), g.list({n, groups, each})});
  const std::string y = g.add("InstanceNormalization",
                              {rows, g.constant(full({groups}, 1)), g.constant(full({groups}, 0))},
                              {{"epsilon", call.number("eps")}});
  return g.add("Reshape", {y, g.list(call.result_shape(-1))});
}

// Over the axes from `rows`, whose sizes are `shape`; the operator requires a scale.
std::string by_layer(const Call& call, const Ints& shape, Names inputs) {
  if (inputs.size() == 1) inputs.push_back(call.graph.constant(full(Shape(shape), 1)));
  return call.graph.add("LayerNormalization", inputs,
                        {{"axis", call.integer("rows")}, {"epsilon", call.number("eps")}});
}

std::string normalize(const Call& call) {
  Graph& g = call.graph;
  const Ints shape(call.shape().begin() + call.integer("rows"), call.shape().end());
  const bool by_row = call.flag("centered") && call.integer("groups") == 1;
  if (by_row && call.flag("has_weight") && call.list("affine") == shape) {
    Names inputs{call.in(0), affine(call, 1)};
    if (call.flag("has_bias")) inputs.push_back(affine(call, 2));
    return by_layer(call, shape, inputs);
  }
  std::string y = !call.flag("centered") ? by_root_mean_square(call)
                  : by_row               ? by_layer(call, shape, {call.in(0)})
                                         : by_groups(call);
  std::size_t next = 1;
  if (call.flag("has_weight")) y = g.add("Mul", {y, affine(call, next++)});
  if (call.flag("has_bias")) y = g.add("Add", {y, affine(call, next)});
  return y;
}

}  // namespace

std::string any_seen(Graph& g, const std::string& scores) {
  const std::string top = g.add("ReduceMax", {scores}, {{"axes", Ints{-1}}, {"keepdims", keep}});
  return as_type(g, g.add("Greater", {top, g.number(-std::numeric_limits<double>::infinity())}),
                 Dtype::f32);
}

void add_reductions(Operators& all) {
  all["softmax"] = softmax("Softmax");
  all["log_softmax"] = softmax("LogSoftmax");
  all["sum"] = sum;
  all["norm"] = norm;
  all["max"] = max;
  all["seen"] = [](const Call& call) { return any_seen(call.graph, call.in(0)); };
  all["map_axis"] = map_axis;
  all["normalize"] = normalize;
}

}  // namespace sotto::nn::onnx
