// Export of models to ONNX files, which onnxruntime and others run without sotto.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/module.h"

namespace sotto::nn {

class TokenModel;

// Names of inputs and of the result in the file.
struct OnnxNames {
  std::vector<std::string> inputs = {"input"};  // in order
  std::string output = "output";                // of the result
};

// Writes the model's function in evaluation, without dropout, as a graph of ONNX operators
// (operator set 17, IR 8): parameters by their names, tied ones once, and the number of samples
// open, as axis "n". The sizes of all other axes are those of the example [n, ...], whose values do
// not matter. The file is replaced as a whole or not at all. Values are f32, and ids i64.
//
//   nn::export_onnx(model, images.slice(0, 0, 1), "model.onnx");
//
// Throws std::invalid_argument, naming the operation and its module, for one without an operator
// there (docs/appendix/layers.md), for values that were not computed from the inputs by operations
// on the tape, for types other than f32, and for a model of 2 GiB or more; SystemFailure if the
// file cannot be written.
void export_onnx(Module& model, const Tensor& example, const std::string& path,
                 const OnnxNames& names = {});

// The same for a model of several inputs, which `forward` calls; names.inputs has one for each.
using OnnxForward = std::function<Var(const std::vector<Var>& inputs)>;
void export_onnx(Module& model, const std::vector<Tensor>& examples, const OnnxForward& forward,
                 const std::string& path, const OnnxNames& names);

// The same for a model of tokens, with those of the inputs that the examples have: "input_ids",
// "attention_mask", "position_ids", "token_type_ids". Axis "t", their length, is open too, up to
// that of the examples, unless they have fewer than 4 tokens or the model takes one length.
struct TokenExamples {
  Tensor ids = {};          // i64 [n, t]
  Tensor mask = {};         // i64 [n, t], or undefined
  Tensor positions = {};    // i64 [n, t], or undefined
  Tensor token_types = {};  // i64 [n, t], or undefined
};
// The result is "logits" unless another name is given.
void export_onnx(TokenModel& model, const TokenExamples& examples, const std::string& path,
                 const std::string& output = "logits");

}  // namespace sotto::nn
