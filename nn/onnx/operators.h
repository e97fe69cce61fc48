// The operators of ONNX that compute what our operations do.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "autograd/trace.h"
#include "nn/onnx/graph.h"

namespace sotto::nn::onnx {

// A call of an operation, as its converter sees it.
class Call {
 public:
  using NameOf = std::function<std::string(const Var& x)>;  // in the graph
  Call(Graph& graph, const TracedValue& traced, NameOf name_of)
      : graph(graph), traced_(traced), name_of_(std::move(name_of)) {}

  Graph& graph;
  // The name of an input, of the result, or of another value that the operation reads.
  std::string in(std::size_t i) const { return name_of_(traced_.inputs.at(i)); }
  std::string name(const Var& x) const { return name_of_(x); }
  const Var& input(std::size_t i) const { return traced_.inputs.at(i); }
  const Shape& shape(std::size_t i = 0) const { return input(i).shape(); }
  std::size_t inputs() const { return traced_.inputs.size(); }
  const Tensor& value() const { return traced_.value; }  // of the result
  const Shape& result() const { return value().shape(); }
  SampleAxis samples() const { return traced_.samples; }
  // The shape of the result, with `batch` in place of the number of samples.
  Ints result_shape(std::int64_t batch) const { return sized(result(), samples(), batch); }
  // A shape with another number of samples.
  static Ints sized(const Shape& shape, SampleAxis samples, std::int64_t batch);

  // An attribute. Throws std::invalid_argument if the operation told none of the name.
  template <class T>
  const T& get(const char* name) const {
    return attribute(name).get<T>();
  }
  bool has(const char* name) const { return traced_.attributes.contains(name); }
  std::int64_t integer(const char* name) const { return get<std::int64_t>(name); }
  bool flag(const char* name) const { return integer(name) != 0; }
  double number(const char* name) const { return get<double>(name); }
  Ints list(const char* name) const;
  // Throws std::invalid_argument: ONNX has no such operator.
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const Attribute& attribute(const char* name) const;

  const TracedValue& traced_;
  NameOf name_of_;
};

// Adds the nodes of a call, and returns the name of the result.
using Converter = std::function<std::string(const Call& call)>;
using Operators = std::map<std::string, Converter>;

// The converters by the operations' names.
const Operators& operators();
// Why there is none, by the names of the other registered operations.
const std::map<std::string, std::string>& refusals();

// Each adds a part of operators().
void add_elementwise(Operators& operators);
void add_shapes(Operators& operators);
void add_products(Operators& operators);
void add_windows(Operators& operators);
void add_reductions(Operators& operators);
void add_recurrent(Operators& operators);

// The order of axes for a Transpose that exchanges two.
Ints exchanged_axes(int rank, int a, int b);
// 1 where a row of scores, along the last axis, has one above minus infinity; else 0.
std::string any_seen(Graph& graph, const std::string& scores);
// A value in another type. A boolean is true where the value is not 0.
std::string as_type(Graph& graph, const std::string& x, Dtype dtype);

}  // namespace sotto::nn::onnx
