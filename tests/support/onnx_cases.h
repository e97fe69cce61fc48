// Layers and operations with examples, to be exported to ONNX files and run by another runtime.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/module.h"

namespace sotto::testing {

struct OnnxCase {
  std::string layer;  // its class, as docs/appendix/layers.md names it, or "op: NAME: use"
  std::unique_ptr<nn::Module> module;
  Tensor example;  // f32 or i64 [n, ...]
};

// At least one for each layer of nn/layers.h.
std::vector<OnnxCase> onnx_layers();
// One for each case of op_cases() with a batched input, whose f64 is f32 here.
std::vector<OnnxCase> onnx_ops();

}  // namespace sotto::testing
