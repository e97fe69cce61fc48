#include "nn/export_onnx.h"

#include <optional>

#include "nn/models/pretrained_model.h"
#include "nn/onnx/traced_graph.h"

namespace sotto::nn {

namespace {

std::vector<onnx::Input> inputs_of(const std::vector<Tensor>& examples, const OnnxNames& names) {
  check(names.inputs.size() == examples.size(), "export_onnx: {} names for {} inputs",
        names.inputs.size(), examples.size());
  std::vector<onnx::Input> inputs;
  for (std::size_t i = 0; i < examples.size(); ++i)
    inputs.push_back({names.inputs[i], examples[i]});
  return inputs;
}

}  // namespace

void export_onnx(Module& model, const Tensor& example, const std::string& path,
                 const OnnxNames& names) {
  export_onnx(
      model, {example}, [&model](const std::vector<Var>& x) { return model(x[0]); }, path, names);
}

void export_onnx(Module& model, const std::vector<Tensor>& examples, const OnnxForward& forward,
                 const std::string& path, const OnnxNames& names) {
  onnx::traced_graph(model, inputs_of(examples, names), forward, names.output).write(path);
}

void export_onnx(TokenModel& model, const TokenExamples& examples, const std::string& path,
                 const std::string& output) {
  std::vector<Tensor> given{examples.ids};
  OnnxNames names{{"input_ids"}, output};
  std::vector<std::optional<Var> TokenInputs::*> places;
  const auto add = [&](const char* name, const Tensor& example,
                       std::optional<Var> TokenInputs::*place) {
    if (!example.defined()) return;
    names.inputs.emplace_back(name);
    given.push_back(example);
    places.push_back(place);
  };
  add("attention_mask", examples.mask, &TokenInputs::mask);
  add("position_ids", examples.positions, &TokenInputs::positions);
  add("token_type_ids", examples.token_types, &TokenInputs::token_types);
  const auto forward = [&](const std::vector<Var>& x) {
    TokenInputs inputs{.ids = x[0]};
    for (std::size_t i = 0; i < places.size(); ++i) inputs.*places[i] = x[i + 1];
    return model(inputs);
  };
  onnx::length_graph(model, inputs_of(given, names), forward, names.output).write(path);
}

}  // namespace sotto::nn
