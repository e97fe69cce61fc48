// Operators of convolution and pooling.
#include <algorithm>

#include "kernels/backend.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/onnx/operators.h"

namespace sotto::nn::onnx {

namespace {

// The last entries of a list with three spatial axes: those that x has.
Ints spatial(const Call& call, const char* name) {
  const Ints all = call.list(name);
  return {all.end() - (call.shape().rank() - 2), all.end()};
}

// Positions that the output has beyond the reach of the kernel, per spatial axis.
Ints beyond(const Call& call) {
  Ints more = spatial(call, "after");
  for (std::int64_t& x : more) x = std::max<std::int64_t>(-x, 0);
  return more;
}

NodeAttributes window(const Call& call) {
  Ints pads = spatial(call, "before");
  for (const std::int64_t x : spatial(call, "after")) pads.push_back(std::max<std::int64_t>(x, 0));
  return {{"kernel_shape", spatial(call, "kernel")},
          {"strides", spatial(call, "stride")},
          {"pads", pads}};
}

NodeAttributes dilated(const Call& call) {
  NodeAttributes attributes = window(call);
  attributes.emplace_back("dilations", spatial(call, "dilation"));
  return attributes;
}

NodeAttributes grouped(const Call& call) {
  NodeAttributes attributes = dilated(call);
  attributes.emplace_back("group", call.integer("groups"));
  return attributes;
}

std::string conv(const Call& call) {
  Names inputs;
  for (std::size_t i = 0; i < call.inputs(); ++i) inputs.push_back(call.in(i));
  return call.graph.add("Conv", inputs, grouped(call));
}

// Zeros behind what the kernel reaches: runtimes differ in how much output_padding they take.
std::string conv_transpose(const Call& call) {
  Graph& g = call.graph;
  const std::string y = g.add("ConvTranspose", {call.in(0), call.in(1)}, grouped(call));
  const Ints more = beyond(call);
  if (std::ranges::count(more, 0) == static_cast<std::ptrdiff_t>(more.size())) return y;
  Ints pads(more.size() + 4);  // none before, none of samples and channels
  pads.insert(pads.end(), more.begin(), more.end());
  return g.add("Pad", {y, g.list(pads)});
}

std::string max_pool(const Call& call) {
  return call.graph.add("MaxPool", {call.in(0)}, dilated(call));
}

// For each window of an average pooling, the elements inside of x over the divisor, [1, 1, ...].
Tensor shares(const Call& call) {
  Window w;
  Shape shape{1, 1}, out{1, 1};
  const Ints kernel = call.list("kernel"), stride = call.list("stride"),
             before = call.list("before"), after = call.list("after");
  const int axes = call.shape().rank() - 2;
  for (int k = 0; k < 3; ++k) {
    const auto at = static_cast<std::size_t>(k);
    w.kernel[k] = kernel[at];
    w.stride[k] = stride[at];
    w.before[k] = before[at];
    w.after[k] = after[at];
    shape.push_back(k < 3 - axes ? 1 : call.shape()[k - 1 + axes]);
    out.push_back(w.output_size(k, shape[2 + k]));
  }
  const Tensor y = zeros(out);
  backend(cpu).avg_pool(full(shape, 1).view(), w, call.flag("count_padding"), y.view());
  Tensor share = y;
  while (share.rank() > call.shape().rank()) share = share.squeeze(2);
  return share;
}

// The mean of a window's elements inside of x, times their share of the divisor.
std::string avg_pool(const Call& call) {
  Graph& g = call.graph;
  const std::string mean = g.add("AveragePool", {call.in(0)}, window(call));
  const Tensor share = shares(call);
  const bool all = std::ranges::all_of(share.to_vector<float>(), [](float x) { return x == 1; });
  return all ? mean : g.add("Mul", {mean, g.constant(share)});
}

}  // namespace

void add_windows(Operators& operators) {
  operators["conv"] = conv;
  operators["conv_transpose"] = conv_transpose;
  operators["max_pool"] = max_pool;
  operators["avg_pool"] = avg_pool;
}

}  // namespace sotto::nn::onnx
