#include "nn/onnx/traced_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "autograd/op.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/onnx/operators.h"
#include "nn/predict.h"

namespace sotto::nn::onnx {

namespace {

// Address, type, sizes and distances, and sample axis: equal for two views of one value. The trace
// keeps all values, so that no memory is used twice.
using Key = std::vector<std::int64_t>;

Key key_of(const Tensor& value, SampleAxis samples) {
  Key key{reinterpret_cast<std::int64_t>(value.view().data),
          static_cast<std::int64_t>(value.dtype()),
          samples.batched()     ? samples.axis()
          : samples.is_shared() ? -1
                                : -2};
  key.insert(key.end(), value.shape().begin(), value.shape().end());
  key.insert(key.end(), value.strides().begin(), value.strides().end());
  return key;
}

// The values that a model computed, in order.
class Trace {
 public:
  void note(TracedValue value) {
    const auto [known, is_new] =
        places_.emplace(key_of(value.value, value.samples), values_.size());
    if (is_new) return values_.push_back(std::move(value));
    TracedValue& before = values_[known->second];
    if (!value.explained || before.op) return;
    for (const Var& x : value.inputs)
      if (place(x) >= known->second) return;  // the value is its own operand
    before = std::move(value);
  }

  std::size_t place(const Var& x) const {
    const auto found = places_.find(key_of(x.value(), x.samples()));
    check(found != places_.end(), "export_onnx: a value {} is on no tape", x.shape());
    return found->second;
  }
  std::size_t size() const { return values_.size(); }
  const TracedValue& operator[](std::size_t place) const { return values_[place]; }

 private:
  std::vector<TracedValue> values_;
  std::map<Key, std::size_t> places_;
};

// Builds the graph of the values that a result needs.
class Builder {
 public:
  Builder(const Trace& trace, Module& model) : trace_(trace), names_(trace.size()) {
    for (const auto& [name, parameter] : model.named_parameters())
      parameters_.emplace(key_of(parameter->value, SampleAxis::shared()), name);
  }

  void input(const std::string& name, const Var& x) {
    graph_.input(name, x.value(), x.samples().axis());
    names_[trace_.place(x)] = name;
  }

  Graph build(const std::string& output, const Var& y) {
    std::vector<bool> needed(trace_.size());
    mark(trace_.place(y), needed);
    for (std::size_t at = 0; at < trace_.size(); ++at) {
      if (!needed[at] || !names_[at].empty()) continue;
      check_value(trace_[at]);
      names_[at] = added(trace_[at]);
    }
    check(y.samples() == SampleAxis(0), "export_onnx: the result {} has no row for each sample",
          y.shape());
    graph_.set_module("");
    graph_.output(output, names_[trace_.place(y)], y.value(), y.samples().axis());
    return std::move(graph_);
  }

 private:
  // The places of a call's operands.
  std::vector<std::size_t> operands(const TracedValue& value) const {
    std::vector<std::size_t> places;
    for (const Var& x : value.inputs) places.push_back(trace_.place(x));
    for (const auto& [name, attribute] : value.attributes) {
      if (const auto* more = attribute.get_if<std::vector<Var>>())
        for (const Var& x : *more) places.push_back(trace_.place(x));
    }
    return places;
  }

  static std::string what(const TracedValue& value) {
    return fmt::format("{}{}{}", value.module, *value.module ? ": " : "",
                       value.op ? value.op : "a constant");
  }

  // Marks a value and all that it is computed from.
  void mark(std::size_t result, std::vector<bool>& needed) const {
    for (std::vector<std::size_t> open{result}; !open.empty();) {
      const std::size_t at = open.back();
      open.pop_back();
      if (needed[at]) continue;
      needed[at] = true;
      check_operation(trace_[at]);
      for (const std::size_t x : operands(trace_[at])) {
        check(trace_[x].op || trace_[x].samples.is_shared() || !names_[x].empty(),
              "export_onnx: {}: its operand {} is not computed from the inputs by operations on "
              "the tape",
              what(trace_[at]), trace_[x].value.shape());
        open.push_back(x);
      }
    }
  }

  static void check_value(const TracedValue& value) {
    check(!value.samples.is_mixed(), "export_onnx: {}: combines samples: result {}", what(value),
          value.value.shape());
    check(!is_float(value.value.dtype()) || value.value.dtype() == Dtype::f32,
          "export_onnx: {}: {} is {}, but files are in f32: convert the model by to(Dtype::f32)",
          what(value), value.value.shape(), name(value.value.dtype()));
  }

  static void check_operation(const TracedValue& value) {
    if (!value.op) return;
    const auto same = [&](std::string_view op) { return op == value.op; };
    check(std::ranges::count_if(registered_ops(), same) == (value.explained ? 0 : 1),
          "export_onnx: {}: several operations have this name", what(value));
    if (operators().contains(value.op)) return;
    const auto known = refusals().find(value.op);
    check(false, "export_onnx: {}: {}", what(value),
          known == refusals().end() ? "no operator of ONNX is known for it" : known->second);
  }

  std::string added(const TracedValue& value) {
    graph_.set_module(value.module);
    if (value.op) {
      const auto name_of = [this](const Var& x) { return names_[trace_.place(x)]; };
      return operators().at(value.op)({graph_, value, name_of});
    }
    const auto own = parameters_.find(key_of(value.value, value.samples));
    return own == parameters_.end() ? graph_.constant(value.value)
                                    : graph_.initializer(own->second, value.value);
  }

  const Trace& trace_;
  std::vector<std::string> names_;  // by place; empty: not in the graph yet
  std::map<Key, std::string> parameters_;
  Graph graph_;
};

// The graph for examples with the same number of rows.
Graph graph_for(Module& model, const std::vector<Input>& inputs, const Forward& forward,
                const std::string& output) {
  Dataset data{.inputs = inputs[0].example, .targets = inputs[0].example};
  for (std::size_t i = 1; i < inputs.size(); ++i) data.fields[inputs[i].name] = inputs[i].example;
  std::optional<Graph> graph;
  const auto run = [&](Tape& tape, const Dataset& batch) {
    Trace trace;
    const TraceHook hook([&](TracedValue value) { trace.note(std::move(value)); });
    std::vector<Var> given;
    for (const Input& input : inputs)
      given.push_back(tape.input(given.empty() ? batch.inputs : batch.field(input.name)));
    const Var y = forward(given);
    Builder builder(trace, model);
    for (std::size_t i = 0; i < given.size(); ++i) builder.input(inputs[i].name, given[i]);
    graph = builder.build(output, y);
    return y;
  };
  predict(model, data, run, data.inputs.size(0));
  return std::move(*graph);
}

// The examples with two rows or more, which tell the sample axis from one of size 1.
std::vector<Input> with_rows(std::vector<Input> inputs) {
  for (Input& input : inputs) {
    const Tensor& x = input.example = contiguous(input.example.to(cpu));
    if (x.size(0) == 1) input.example = concat({x, x}, 0);
  }
  return inputs;
}

// Other examples: one row more, the elements of each row in reverse order, numbers halved. Ids and
// masks remain ids and masks.
std::vector<Input> varied(std::vector<Input> inputs) {
  for (Input& input : inputs) {
    const Tensor& x = input.example;
    const Tensor rows = reshape(concat({x, x.slice(0, 0, 1)}, 0), {x.size(0) + 1, -1});
    std::vector<std::int64_t> reversed(static_cast<std::size_t>(rows.size(1)));
    std::iota(reversed.rbegin(), reversed.rend(), 0);
    Tensor y = gather(rows, Tensor::from(reversed, {rows.size(1)}), 1);
    if (is_float(x.dtype())) y = mul(y, full({}, 0.5, x.dtype()));
    Shape shape = x.shape();
    shape[0] += 1;
    input.example = reshape(y, shape);
  }
  return inputs;
}

}  // namespace

Graph traced_graph(Module& model, const std::vector<Input>& inputs, const Forward& forward,
                   const std::string& output) {
  check(!inputs.empty(), "export_onnx: no inputs");
  for (const Input& input : inputs) {
    check(input.example.defined() && input.example.rank() >= 1 && input.example.size(0) >= 1 &&
              input.example.size(0) == inputs[0].example.size(0),
          "export_onnx: input {}: an example of shape {} has no rows, or not as many as {}",
          input.name, input.example.shape(), inputs[0].name);
  }
  const std::vector<Input> examples = with_rows(inputs);
  Graph graph = graph_for(model, examples, forward, output);
  const std::string difference =
      graph.difference(graph_for(model, varied(examples), forward, output));
  check(difference.empty(),
        "export_onnx: {}: differs between two batches, and not by operations on the tape",
        difference);
  return graph;
}

Graph length_graph(Module& model, const std::vector<Input>& inputs, const Forward& forward,
                   const std::string& output) {
  Graph graph = traced_graph(model, inputs, forward, output);
  constexpr std::int64_t least = 4;  // the shortest of the three has an axis above 1
  const std::int64_t length = inputs[0].example.rank() >= 2 ? inputs[0].example.size(1) : 0;
  if (length < least) return graph;
  const auto shorter = [&](std::int64_t by) {
    std::vector<Input> cut = with_rows(inputs);
    for (Input& input : cut) input.example = contiguous(input.example.slice(1, 0, length - by));
    return graph_for(model, cut, forward, output);
  };
  try {
    return graph.of_any_length(shorter(1), shorter(2)).value_or(graph);
  } catch (const std::invalid_argument&) {  // the model takes rows of one length
    return graph;
  }
}

}  // namespace sotto::nn::onnx
