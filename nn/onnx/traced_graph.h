// The graph of what a model computes, from traces of its calls.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/module.h"
#include "nn/onnx/graph.h"

namespace sotto::nn::onnx {

struct Input {
  std::string name;
  Tensor example;  // [n, ...]
};

// The graph of forward's result on the inputs, called `output`, for any number of samples. It is
// traced for the examples and for others. Throws std::invalid_argument for an operation that is not
// exported, for a value that operations on the tape did not compute from the inputs, for one that
// combines samples, and if the traces differ.
using Forward = std::function<Var(const std::vector<Var>& inputs)>;
Graph traced_graph(Module& model, const std::vector<Input>& inputs, const Forward& forward,
                   const std::string& output);

// The same of inputs [n, t, ...] for rows of any length, up to the examples' t: three lengths are
// traced, and a size or constant that follows from the length is computed from it. The graph is for
// the examples' length alone where they have fewer than 4 elements or something else differs.
Graph length_graph(Module& model, const std::vector<Input>& inputs, const Forward& forward,
                   const std::string& output);

}  // namespace sotto::nn::onnx
