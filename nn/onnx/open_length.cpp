// Rows of any length: graphs of three lengths differ in constants, and these follow from the
// length.
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/onnx/graph.h"

namespace sotto::nn::onnx {

namespace {

constexpr std::size_t cases = 3;  // two lengths make a rule, and the third tests it
using Values = std::array<const Tensor*, cases>;
using Lengths = std::array<std::int64_t, cases>;  // falling

bool same(const Tensor& a, const Tensor& b) {
  const void *const x = a.view().data, *const y = b.view().data;
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (x == y || std::memcmp(x, y, a.bytes()) == 0);  // parameters are at one place
}

bool is_list(const Tensor& x) { return x.dtype() == Dtype::i64 && x.rank() == 1; }

constexpr std::string_view length_axis = "t";  // the name of the axis of rows' elements

// The number factor length + term.
struct Line {
  std::int64_t factor, term;
};

std::optional<Line> line_through(const std::array<std::int64_t, cases>& values,
                                 const Lengths& lengths) {
  const std::int64_t rise = values[0] - values[1], run = lengths[0] - lengths[1];
  const std::int64_t factor = rise / run, term = values[0] - factor * lengths[0];
  for (std::size_t k = 0; k < cases; ++k)
    if (factor * lengths[k] + term != values[k]) return std::nullopt;
  return Line{factor, term};
}

// Adds the nodes that compute constants from the length of the first input's rows.
class LengthRules {
 public:
  LengthRules(Graph& graph, const Lengths& lengths) : graph_(graph), lengths_(lengths) {}

  // The name of the value of a node's input, whose names in the three graphs are given, and the
  // tensors of those that are in the file. Empty if it does not follow.
  std::string input(const Names& names, const Values& values) {
    const bool constant = std::ranges::all_of(values, [](const Tensor* x) { return x != nullptr; });
    if (!constant) return names[1] == names[0] && names[2] == names[0] ? names[0] : std::string();
    return same(*values[0], *values[1]) && same(*values[0], *values[2]) ? names[0] : rule(values);
  }

 private:
  std::string rule(const Values& values) {
    const std::int64_t size = values[0]->numel();
    const bool lists = std::ranges::all_of(
        values, [&](const Tensor* x) { return is_list(*x) && x->numel() == size; });
    return lists ? list(values) : beginning(values);
  }

  // i64 [1].
  std::string length() {
    if (length_.empty()) {
      length_ = graph_.add("Shape", {graph_.first_input()},
                           {{"start", std::int64_t{1}}, {"end", std::int64_t{2}}});
    }
    return length_;
  }

  std::string number(const Line& line) {
    if (line.factor == 0) return graph_.list({line.term});
    std::string y = length();
    if (line.factor != 1) y = graph_.add("Mul", {y, graph_.list({line.factor})});
    return line.term == 0 ? y : graph_.add("Add", {y, graph_.list({line.term})});
  }

  std::string list(const Values& values) {
    Names parts;
    for (std::int64_t i = 0; i < values[0]->numel(); ++i) {
      std::array<std::int64_t, cases> each{};
      for (std::size_t k = 0; k < cases; ++k)
        each[k] = static_cast<const std::int64_t*>(values[k]->view().data)[i];
      const std::optional<Line> line = line_through(each, lengths_);
      if (!line) return {};
      parts.push_back(number(*line));
    }
    return parts.size() == 1 ? parts[0] : graph_.add("Concat", parts, {{"axis", std::int64_t{0}}});
  }

  // The beginning of a constant along the axes whose sizes are the length.
  std::string beginning(const Values& values) {
    const Tensor& longest = *values[0];
    if (values[1]->rank() != longest.rank()) return {};
    Ints axes;
    for (int axis = 0; axis < longest.rank(); ++axis)
      if (values[1]->size(axis) != longest.size(axis)) axes.push_back(axis);
    for (std::size_t k = 0; k < cases; ++k) {
      Tensor cut = longest;
      for (const std::int64_t axis : axes) {
        if (longest.size(static_cast<int>(axis)) != lengths_[0]) return {};
        cut = cut.slice(static_cast<int>(axis), 0, lengths_[k]);
      }
      if (!same(contiguous(cut), *values[k])) return {};
    }
    const Names ends(axes.size(), length());
    const std::string end =
        ends.size() == 1 ? ends[0] : graph_.add("Concat", ends, {{"axis", std::int64_t{0}}});
    return graph_.add("Slice", {graph_.constant(longest), graph_.list(Ints(axes.size())), end,
                                graph_.list(axes)});
  }

  Graph& graph_;
  Lengths lengths_;
  std::string length_;
};

}  // namespace

std::optional<Graph> Graph::of_any_length(const Graph& shorter, const Graph& shortest) const {
  const std::array<const Graph*, cases> all{this, &shorter, &shortest};
  Graph open = *this;
  open.nodes_.clear();
  open.set_module("length");
  Lengths lengths{};
  for (std::size_t k = 0; k < cases; ++k) {
    if (all[k]->nodes_.size() != nodes_.size()) return std::nullopt;
    lengths[k] = all[k]->declared_.at(0).sizes.at(1);
  }
  LengthRules rules(open, lengths);
  std::map<Names, std::string> known;  // a value of `open` by the names of the input in `all`
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    Node node = nodes_[i];
    const Node &b = shorter.nodes_[i], &c = shortest.nodes_[i];
    if (!node.same_but_inputs(b) || !node.same_but_inputs(c)) return std::nullopt;
    for (std::size_t j = 0; j < node.inputs.size(); ++j) {
      const Names names{node.inputs[j], b.inputs[j], c.inputs[j]};
      const auto [at, is_new] = known.emplace(names, "");
      if (is_new)
        at->second = rules.input(
            names, {stored(names[0]), shorter.stored(names[1]), shortest.stored(names[2])});
      if (at->second.empty() && !names[0].empty()) return std::nullopt;
      node.inputs[j] = at->second;
    }
    open.nodes_.push_back(std::move(node));
  }
  open.drop_unused();
  for (std::size_t i = 0; i < declared_.size(); ++i) {
    Declared& value = open.declared_[i];
    for (std::size_t axis = 0; axis < value.sizes.size(); ++axis) {
      const std::int64_t size = value.sizes[axis], other = shorter.declared_[i].sizes.at(axis);
      if (size == other) continue;
      if (size != lengths[0]) return std::nullopt;
      value.axes[axis] = std::string(length_axis);
    }
  }
  return open;
}

}  // namespace sotto::nn::onnx
