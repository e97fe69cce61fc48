// A graph of ONNX operators while it is built, and its file (onnx.proto of ONNX 1.12: IR 8,
// operator set 17).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "nn/onnx/proto_message.h"

namespace sotto::nn::onnx {

using Ints = std::vector<std::int64_t>;
using Names = std::vector<std::string>;
// An attribute of an operator.
class NodeAttribute {
 public:
  NodeAttribute(std::string_view name, std::int64_t value);
  NodeAttribute(std::string_view name, double value);
  NodeAttribute(std::string_view name, std::string_view value);
  NodeAttribute(std::string_view name, const char* value)
      : NodeAttribute(name, std::string_view(value)) {}
  NodeAttribute(std::string_view name, const Ints& values);
  NodeAttribute(std::string_view name, const Names& values);
  const ProtoMessage& message() const { return message_; }

 private:
  ProtoMessage message_;
};
using NodeAttributes = std::vector<NodeAttribute>;

// The number of a type in ONNX (TensorProto::DataType).
std::int64_t type_number(Dtype dtype);

class Graph {
 public:
  // Value `name` [.., n, ..] with the samples along `axis`.
  void input(const std::string& name, const Tensor& example, int axis);
  void output(const std::string& name, const std::string& value, const Tensor& example, int axis);
  // A tensor of the file by name, such as a parameter.
  std::string initializer(const std::string& name, const Tensor& value);
  // A tensor of the file without a name of its own; equal ones are stored once.
  std::string constant(const Tensor& value);
  std::string number(double value);      // f32 []
  std::string list(const Ints& values);  // i64 [values]

  // Adds a node and returns the name of its result. An absent input is an empty name.
  std::string add(const char* op, const Names& inputs, const NodeAttributes& attributes = {});
  // Adds a node with several results.
  Names add_several(const char* op, const Names& inputs, int results,
                    const NodeAttributes& attributes = {});
  // The number of samples, i64 [1].
  std::string samples();
  const std::string& first_input() const { return first_input_; }
  // The path of the module that the next nodes are for; their names begin with it.
  void set_module(const std::string& path) { module_ = path; }

  // The name of the first node, or constant, that another graph does not have; empty if there is
  // none.
  std::string difference(const Graph& other) const;
  // The graph for rows of any length up to that of this graph, axis 1 of its first input, by graphs
  // of two shorter ones. Nullopt if they differ by more than sizes of axes, and by numbers and
  // beginnings of constants that follow from the length.
  std::optional<Graph> of_any_length(const Graph& shorter, const Graph& shortest) const;
  // Writes the file, whole or not at all. Throws std::invalid_argument above 2 GiB, the most that a
  // message of Protocol Buffers holds.
  void write(const std::string& path) const;

 private:
  struct Node {
    std::string name, op;
    Names inputs, outputs;
    ProtoMessage attributes;  // fields of the node

    ProtoMessage message() const;
    bool same_but_inputs(const Node& other) const;  // as many inputs, of any names
  };
  // An input or output.
  struct Declared {
    int field;
    std::string name;
    Dtype dtype;
    Ints sizes;
    Names axes;  // of each the name, if its size is open; else empty

    ProtoMessage message() const;
  };
  struct Initializer {
    std::string name;
    Tensor value;
  };

  // Throws std::invalid_argument for a name that another value of the file has.
  void take_name(const std::string& name);
  void declare(int field, const std::string& name, const Tensor& example, int axis);
  // The tensor of an initializer; null if none has this name.
  const Tensor* stored(const std::string& name) const;
  void drop_unused();

  std::vector<Node> nodes_;
  std::vector<Initializer> initializers_;
  std::map<std::pair<std::string, std::string>, std::string> constants_;  // (form, bytes) to name
  std::vector<Declared> declared_;                                        // inputs and outputs
  std::set<std::string> names_;  // of inputs, output and tensors
  std::string module_, samples_, first_input_;
  int first_axis_ = 0;
};

}  // namespace sotto::nn::onnx
