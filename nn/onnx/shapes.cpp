// Operators that move elements, and those with ids.
#include <algorithm>

#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/onnx/operators.h"

namespace sotto::nn::onnx {

namespace {

// x as the shape of the result: -1 stands for the number of samples.
std::string reshape(const Call& call) {
  for (const std::int64_t size : call.result())
    if (size == 0) call.refuse("a value without elements");
  return call.graph.add("Reshape", {call.in(0), call.graph.list(call.result_shape(-1))});
}

std::string permute(const Call& call) {
  Ints axes = call.list("axes");
  for (std::int64_t& axis : axes) axis += axis < 0 ? static_cast<std::int64_t>(axes.size()) : 0;
  return call.graph.add("Transpose", {call.in(0)}, {{"perm", axes}});
}

// A size of 1 keeps that of x.
std::string expand(const Call& call) {
  return call.graph.add("Expand", {call.in(0), call.graph.list(call.result_shape(1))});
}

std::string slice(const Call& call) {
  Graph& g = call.graph;
  return g.add("Slice",
               {call.in(0), g.list({call.integer("start")}), g.list({call.integer("stop")}),
                g.list({call.integer("axis")}), g.list({call.integer("step")})});
}

// A shape whose entry `axis` is the number of samples; -1: none is.
std::string batch_shape(Graph& g, const Ints& sizes, int axis) {
  if (axis < 0) return g.list(sizes);
  const auto at = sizes.begin() + axis;
  Names parts;
  if (axis > 0) parts.push_back(g.list(Ints(sizes.begin(), at)));
  parts.push_back(g.samples());
  if (at + 1 != sizes.end()) parts.push_back(g.list(Ints(at + 1, sizes.end())));
  return parts.size() == 1 ? parts[0] : g.add("Concat", parts, {{"axis", std::int64_t{0}}});
}

// Values that all samples share are repeated for each.
std::string concat(const Call& call) {
  Graph& g = call.graph;
  Names parts;
  for (std::size_t i = 0; i < call.inputs(); ++i) {
    parts.push_back(call.in(i));
    if (!call.samples().batched() || !call.input(i).samples().is_shared()) continue;
    const int axis = call.samples().axis();
    const Ints ones(static_cast<std::size_t>(call.result().rank()), 1);
    parts.back() = g.add("Expand", {parts.back(), batch_shape(g, ones, axis)});
  }
  return g.add("Concat", parts, {{"axis", call.integer("axis")}});
}

// Elements by their ids along an axis. Zeros in place of an id of -1 stand at the ends (padding) or
// anywhere.
std::string take(const Call& call) {
  Graph& g = call.graph;
  const std::int64_t axis = call.integer("axis");
  Ints ids = call.get<Tensor>("ids").to_vector<std::int64_t>();
  const bool gaps = std::ranges::find(ids, -1) != ids.end();
  const Tensor there = to_dtype(call.get<Tensor>("ids"), Dtype::f32);
  std::ranges::replace(ids, -1, 0);
  const std::string y = g.add("Gather", {call.in(0), g.list(ids)}, {{"axis", axis}});
  if (!gaps) return y;
  std::vector<float> kept = there.to_vector<float>();
  for (float& id : kept) id = id < 0 ? 0 : 1;
  Shape shape = Shape::filled(call.result().rank() - static_cast<int>(axis), 1);
  shape[0] = static_cast<std::int64_t>(ids.size());
  const std::string mask = as_type(g, g.constant(Tensor::from(kept, shape)), Dtype::boolean);
  return g.add("Where", {mask, y, g.number(0)});
}

std::string gather(const Call& call) {
  const std::string ids = call.name(call.get<std::vector<Var>>("ids").at(0));
  return call.graph.add("GatherElements", {call.in(0), ids}, {{"axis", call.integer("axis")}});
}

std::string scatter(const Call& call) {
  Graph& g = call.graph;
  const int axis = call.samples().batched() ? call.samples().axis() : -1;
  const std::string zeros =
      g.add("Expand", {g.number(0), batch_shape(g, call.list("shape"), axis)});
  const std::string ids = call.name(call.get<std::vector<Var>>("ids").at(0));
  return g.add("ScatterElements", {zeros, ids, call.in(0)},
               {{"axis", call.integer("axis")}, {"reduction", "add"}});
}

// One row for all samples.
std::string repeated(const Call& call) {
  Graph& g = call.graph;
  const int axis = call.samples().axis();
  const Ints ones(static_cast<std::size_t>(call.result().rank()), 1);
  return g.add("Expand", {g.constant(call.value().slice(axis, 0, 1)), batch_shape(g, ones, axis)});
}

// The numbers of tokens [n, t] from padding + 1 on; padding has the number `padding`.
std::string counted_positions(const Call& call) {
  Graph& g = call.graph;
  const std::string padding = g.list({call.integer("padding")});
  const std::string tokens =
      as_type(g, g.add("Not", {g.add("Equal", {call.in(0), padding})}), Dtype::i64);
  const std::string counts = g.add("CumSum", {tokens, g.constant(Tensor::from(Ints{1}, {}))});
  return g.add("Add", {g.add("Mul", {counts, tokens}), padding});
}

std::string argmax(const Call& call) {
  return call.graph.add("ArgMax", {call.in(0)},
                        {{"axis", call.integer("axis")}, {"keepdims", std::int64_t{1}}});
}

std::string argsort(const Call& call) {
  const std::int64_t axis = call.integer("axis"), descending = call.integer("descending");
  const std::int64_t size = call.shape()[static_cast<int>(axis)];
  return call.graph.add_several("TopK", {call.in(0), call.graph.list({size})}, 2,
                                {{"axis", axis}, {"largest", descending}})[1];
}

}  // namespace

void add_shapes(Operators& all) {
  all["reshape"] = reshape;
  all["permute"] = permute;
  all["expand"] = expand;
  all["slice"] = slice;
  all["concat"] = concat;
  all["take"] = take;
  all["gather"] = gather;
  all["scatter"] = scatter;
  all["repeated"] = repeated;
  all["argmax"] = argmax;
  all["argsort"] = argsort;
  all["counted_positions"] = counted_positions;
  all["to_f32"] = [](const Call& call) { return as_type(call.graph, call.in(0), Dtype::f32); };
  all["to_i64"] = [](const Call& call) { return as_type(call.graph, call.in(0), Dtype::i64); };
}

}  // namespace sotto::nn::onnx
