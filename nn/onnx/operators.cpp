#include "nn/onnx/operators.h"

#include <numeric>

namespace sotto::nn::onnx {

Ints Call::sized(const Shape& shape, SampleAxis samples, std::int64_t batch) {
  Ints sizes(shape.begin(), shape.end());
  if (samples.batched()) sizes.at(static_cast<std::size_t>(samples.axis())) = batch;
  return sizes;
}

Ints Call::list(const char* name) const {
  const Shape& list = get<Shape>(name);
  return {list.begin(), list.end()};
}

void Call::refuse(const std::string& why) const {
  check(false, "export_onnx: {}: {}", traced_.op, why);
  std::abort();
}

const Attribute& Call::attribute(const char* name) const {
  const auto found = traced_.attributes.find(name);
  check(found != traced_.attributes.end(), "export_onnx: {}: does not tell its {}", traced_.op,
        name);
  return found->second;
}

Ints exchanged_axes(int rank, int a, int b) {
  Ints axes(static_cast<std::size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes.at(static_cast<std::size_t>(a)), axes.at(static_cast<std::size_t>(b)));
  return axes;
}

std::string as_type(Graph& graph, const std::string& x, Dtype dtype) {
  return graph.add("Cast", {x}, {{"to", type_number(dtype)}});
}

const Operators& operators() {
  static const Operators all = [] {
    Operators made;
    add_elementwise(made);
    add_shapes(made);
    add_products(made);
    add_windows(made);
    add_reductions(made);
    add_recurrent(made);
    return made;
  }();
  return all;
}

const std::map<std::string, std::string>& refusals() {
  static const std::map<std::string, std::string> all{
      {"cast", "the file is in f32: set no other precision, and convert the model by to(f32)"},
      {"cross_entropy", "a loss is for training"},
      {"ctc_loss", "a loss is for training"},
      {"dropout", "dropout is for training"},
      {"quantized_linear", "quantised weights: load the model with f32 weights"},
      {"segment", "the operations within are exported, and not the segment"},
      {"segment_result", "the operations within are exported, and not the segment"},
      {"sort", "its order is exported, and the values are gathered"},
      {"split", "the parts of a value with a gradient are for training"},
      {"views", "several views of a sample are for training"}};
  return all;
}

}  // namespace sotto::nn::onnx
