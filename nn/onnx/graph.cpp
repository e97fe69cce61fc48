#include "nn/onnx/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/io/atomic_file.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::nn::onnx {

namespace {

constexpr std::int64_t ir_version = 8, operator_set = 17;
constexpr std::string_view batch_axis = "n";  // the name of the axis whose size is open

// Numbers of fields in onnx.proto.
namespace model_field {
enum { ir_version = 1, producer = 2, graph = 7, operator_sets = 8 };
}
namespace operator_set_field {
enum { version = 2 };
}
namespace graph_field {
enum { node = 1, name = 2, initializer = 5, input = 11, output = 12 };
}
namespace node_field {
enum { input = 1, output = 2, name = 3, op = 4, attribute = 5 };
}
namespace attribute_field {
enum { name = 1, real = 2, integer = 3, text = 4, integers = 8, texts = 9, type = 20 };
}
namespace tensor_field {
enum { sizes = 1, type = 2, name = 8, elements = 9 };
}
namespace value_field {
enum { name = 1, type = 2 };
}
namespace type_field {
enum { tensor = 1 };
}
namespace tensor_type_field {
enum { element = 1, shape = 2 };
}
namespace shape_field {
enum { axis = 1 };
}
namespace axis_field {
enum { size = 1, name = 2 };
}

std::string_view elements(const Tensor& x) {
  return {static_cast<const char*>(x.view().data), x.bytes()};
}

// AttributeProto::AttributeType.
enum AttributeType : std::int64_t { real = 1, integer = 2, text = 3, integers = 7, texts = 8 };

ProtoMessage attribute(std::string_view name, AttributeType type) {
  ProtoMessage message;
  message.add(attribute_field::name, name);
  message.add(attribute_field::type, type);
  return message;
}

// A TensorProto up to its elements.
ProtoMessage head_of(const std::string& name, const Tensor& value) {
  ProtoMessage head;
  for (const std::int64_t size : value.shape()) head.add(tensor_field::sizes, size);
  head.add(tensor_field::type, type_number(value.dtype()));
  head.add(tensor_field::name, std::string_view(name));
  head.begin(tensor_field::elements, value.bytes());
  return head;
}

}  // namespace

std::int64_t type_number(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32: return 1;
    case Dtype::u8: return 2;
    case Dtype::i32: return 6;
    case Dtype::i64: return 7;
    case Dtype::boolean: return 9;
    case Dtype::f16: return 10;
    case Dtype::f64: return 11;
    case Dtype::bf16: return 16;
  }
  return 0;
}

NodeAttribute::NodeAttribute(std::string_view name, std::int64_t value)
    : message_(attribute(name, integer)) {
  message_.add(attribute_field::integer, value);
}
NodeAttribute::NodeAttribute(std::string_view name, double value)
    : message_(attribute(name, real)) {
  message_.add(attribute_field::real, static_cast<float>(value));
}
NodeAttribute::NodeAttribute(std::string_view name, std::string_view value)
    : message_(attribute(name, text)) {
  message_.add(attribute_field::text, value);
}
NodeAttribute::NodeAttribute(std::string_view name, const Ints& values)
    : message_(attribute(name, integers)) {
  for (const std::int64_t x : values) message_.add(attribute_field::integers, x);
}
NodeAttribute::NodeAttribute(std::string_view name, const Names& values)
    : message_(attribute(name, texts)) {
  for (const std::string& x : values) message_.add(attribute_field::texts, std::string_view(x));
}

void Graph::take_name(const std::string& name) {
  check(names_.insert(name).second, "export_onnx: two values of the file are called {}", name);
}

void Graph::declare(int field, const std::string& name, const Tensor& example, int axis) {
  take_name(name);
  const Shape& shape = example.shape();
  Declared value{field, name, example.dtype(), {shape.begin(), shape.end()}, Names(shape.rank())};
  value.axes.at(static_cast<std::size_t>(axis)) = std::string(batch_axis);
  declared_.push_back(value);
}

ProtoMessage Graph::Declared::message() const {
  ProtoMessage shape, tensor, type, value;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ProtoMessage size;
    if (axes[i].empty())
      size.add(axis_field::size, sizes[i]);
    else
      size.add(axis_field::name, std::string_view(axes[i]));
    shape.add(shape_field::axis, size);
  }
  tensor.add(tensor_type_field::element, type_number(dtype));
  tensor.add(tensor_type_field::shape, shape);
  type.add(type_field::tensor, tensor);
  value.add(value_field::name, std::string_view(name));
  value.add(value_field::type, type);
  return value;
}

ProtoMessage Graph::Node::message() const {
  ProtoMessage message;
  for (const std::string& x : inputs) message.add(node_field::input, std::string_view(x));
  for (const std::string& y : outputs) message.add(node_field::output, std::string_view(y));
  message.add(node_field::name, std::string_view(name));
  message.add(node_field::op, std::string_view(op));
  message.append(attributes);
  return message;
}

bool Graph::Node::same_but_inputs(const Node& other) const {
  return name == other.name && op == other.op && inputs.size() == other.inputs.size() &&
         outputs == other.outputs && attributes.bytes() == other.attributes.bytes();
}

const Tensor* Graph::stored(const std::string& name) const {
  const auto found = std::ranges::find(initializers_, name, &Initializer::name);
  return found == initializers_.end() ? nullptr : &found->value;
}

void Graph::drop_unused() {
  std::set<std::string> used;
  for (const Node& node : nodes_) used.insert(node.inputs.begin(), node.inputs.end());
  std::erase_if(initializers_, [&](const Initializer& x) { return !used.contains(x.name); });
}

void Graph::input(const std::string& name, const Tensor& example, int axis) {
  if (first_input_.empty()) {
    first_input_ = name;
    first_axis_ = axis;
  }
  declare(graph_field::input, name, example, axis);
}

void Graph::output(const std::string& name, const std::string& value, const Tensor& example,
                   int axis) {
  declare(graph_field::output, name, example, axis);
  nodes_.push_back({name, "Identity", {value}, {name}, {}});
}

std::string Graph::initializer(const std::string& name, const Tensor& value) {
  take_name(name);
  initializers_.push_back({name, contiguous(value.to(cpu))});
  return name;
}

std::string Graph::constant(const Tensor& value) {
  const Tensor x = contiguous(value.to(cpu));
  std::string& known =
      constants_[{fmt::format("{} {}", name(x.dtype()), x.shape()), std::string(elements(x))}];
  if (known.empty()) known = initializer(fmt::format("constant_{}", constants_.size()), clone(x));
  return known;
}

std::string Graph::number(double value) { return constant(full({}, value)); }

std::string Graph::list(const Ints& values) {
  return constant(Tensor::from(values, {static_cast<std::int64_t>(values.size())}));
}

Names Graph::add_several(const char* op, const Names& inputs, int results,
                         const NodeAttributes& attributes) {
  const std::string name =
      fmt::format("{}{}{}_{}", module_, module_.empty() ? "" : "/", op, nodes_.size());
  Node node{name, op, inputs, {}, {}};
  for (int i = 0; i < results; ++i)
    node.outputs.push_back(results == 1 ? name : fmt::format("{}:{}", name, i));
  for (const NodeAttribute& x : attributes) node.attributes.add(node_field::attribute, x.message());
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

std::string Graph::add(const char* op, const Names& inputs, const NodeAttributes& attributes) {
  return add_several(op, inputs, 1, attributes)[0];
}

std::string Graph::samples() {
  if (samples_.empty()) {
    samples_ = add("Shape", {first_input_},
                   {{"start", std::int64_t{first_axis_}}, {"end", std::int64_t{first_axis_ + 1}}});
  }
  return samples_;
}

std::string Graph::difference(const Graph& other) const {
  for (std::size_t i = 0; i < std::max(nodes_.size(), other.nodes_.size()); ++i) {
    if (i >= nodes_.size()) return other.nodes_[i].name;
    if (i >= other.nodes_.size() || !nodes_[i].same_but_inputs(other.nodes_[i]) ||
        nodes_[i].inputs != other.nodes_[i].inputs)
      return nodes_[i].name;
  }
  if (constants_ == other.constants_) return {};
  const auto different = std::ranges::mismatch(constants_, other.constants_).in1;
  return different == constants_.end() ? "a constant" : different->second;
}

void Graph::write(const std::string& path) const {
  ProtoMessage small;  // the graph but for the tensors
  for (const Node& node : nodes_) small.add(graph_field::node, node.message());
  small.add(graph_field::name, std::string_view("model"));
  for (const Declared& value : declared_) small.add(value.field, value.message());
  std::uint64_t size = small.bytes().size();
  std::vector<std::string> heads;
  for (const Initializer& x : initializers_) {
    const std::string head = head_of(x.name, x.value).bytes();
    ProtoMessage field;
    field.begin(graph_field::initializer, head.size() + x.value.bytes());
    heads.push_back(field.bytes() + head);
    size += heads.back().size() + x.value.bytes();
  }
  ProtoMessage model, set;
  set.add(operator_set_field::version, operator_set);
  model.add(model_field::ir_version, ir_version);
  model.add(model_field::producer, std::string_view("sotto"));
  model.add(model_field::operator_sets, set);
  model.begin(model_field::graph, size);
  check(size + model.bytes().size() <= std::numeric_limits<std::int32_t>::max(),
        "export_onnx: {}: the model has {} bytes, an ONNX file at most 2 GiB", path, size);
  write_file_atomically(path, [&](FileWriter& file) {
    file.write(model.bytes());
    file.write(small.bytes());
    for (std::size_t i = 0; i < heads.size(); ++i) {
      file.write(heads[i]);
      file.write(elements(initializers_[i].value));
    }
  });
}

}  // namespace sotto::nn::onnx
