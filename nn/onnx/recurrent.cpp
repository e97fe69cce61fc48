// Operators of recurrent layers. The op's result holds all steps, and for an LSTM more
// (autograd/ops/sequence/lstm.cpp): [n, t + 2, h] with the first state in front and the last cell
// at the end, in reverse with the first state behind the steps.
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/onnx/operators.h"

namespace sotto::nn::onnx {

namespace {

constexpr std::int64_t first = 0;

// Blocks of rows of a weight or bias in another order.
std::string reordered(Graph& g, const std::string& x, std::int64_t rows, const Ints& order) {
  const auto gates = static_cast<std::int64_t>(order.size()), each = rows / gates;
  if (gates == 1) return x;
  Names parts;
  for (const std::int64_t k : order) {
    parts.push_back(g.add("Slice", {x, g.list({k * each}), g.list({(k + 1) * each}), g.list({0})}));
  }
  return g.add("Concat", parts, {{"axis", first}});
}

// The operands of a layer in one direction: x [t, n, i], weights and biases with an axis in front,
// and the first states [1, n, h].
class Operands {
 public:
  Operands(const Call& call, Ints gates) : call_(call), gates_(std::move(gates)) {}

  Names all() const {
    Graph& g = call_.graph;
    Names names{g.add("Transpose", {call_.in(0)}, {{"perm", Ints{1, 0, 2}}}), weight(1), weight(2)};
    const bool biased = place("bias_ih") >= 0 || place("bias_hh") >= 0;
    names.push_back(
        biased ? in_front(g.add("Concat", {bias("bias_ih"), bias("bias_hh")}, {{"axis", first}}))
               : "");
    names.push_back("");  // lengths of sequences
    names.push_back(state("h0"));
    if (gates_.size() == 4) names.push_back(state("c0"));
    while (names.back().empty()) names.pop_back();
    return names;
  }

 private:
  std::int64_t place(const char* name) const { return call_.integer(name); }
  std::int64_t rows() const { return call_.shape(1)[0]; }
  std::string in_front(const std::string& x) const {
    return call_.graph.add("Unsqueeze", {x, call_.graph.list({0})});
  }
  std::string weight(std::size_t input) const {
    return in_front(reordered(call_.graph, call_.in(input), rows(), gates_));
  }
  std::string bias(const char* name) const {
    if (place(name) < 0) return call_.graph.constant(zeros({rows()}));
    return reordered(call_.graph, call_.in(static_cast<std::size_t>(place(name))), rows(), gates_);
  }
  std::string state(const char* name) const {
    return place(name) < 0 ? "" : in_front(call_.in(static_cast<std::size_t>(place(name))));
  }

  const Call& call_;
  Ints gates_;
};

NodeAttributes attributes(const Call& call) {
  NodeAttributes made{{"hidden_size", call.shape(2)[1]}};
  if (call.flag("reverse")) made.push_back({"direction", "reverse"});
  return made;
}

// The steps [t, 1, n, h] of a result as [n, t, h].
std::string samples_first(Graph& g, const std::string& steps) {
  const std::string squeezed = g.add("Squeeze", {steps, g.list({1})});
  return g.add("Transpose", {squeezed}, {{"perm", Ints{1, 0, 2}}});
}

void check_plain(const Call& call) {
  if (call.flag("lengths")) call.refuse("lengths of sequences are not exported");
  if (call.integer("hr") >= 0) call.refuse("ONNX has no projection of states");
}

std::string rnn(const Call& call) {
  check_plain(call);
  NodeAttributes with = attributes(call);
  if (call.flag("relu")) with.push_back({"activations", Names{"Relu"}});
  return samples_first(call.graph,
                       call.graph.add_several("RNN", Operands(call, {0}).all(), 2, with)[0]);
}

// ONNX has the gates in the order update, reset, new.
std::string gru(const Call& call) {
  check_plain(call);
  NodeAttributes with = attributes(call);
  with.push_back({"linear_before_reset", std::int64_t{1}});
  return samples_first(call.graph,
                       call.graph.add_several("GRU", Operands(call, {1, 0, 2}).all(), 2, with)[0]);
}

// ONNX has the gates in the order input, output, forget, cell.
std::string lstm(const Call& call) {
  check_plain(call);
  Graph& g = call.graph;
  const Names y = g.add_several("LSTM", Operands(call, {0, 3, 1, 2}).all(), 3, attributes(call));
  const auto as_step = [&](const std::string& state) {
    return g.add("Transpose", {state}, {{"perm", Ints{1, 0, 2}}});
  };
  const std::string last_cell = as_step(y[2]), steps = samples_first(g, y[0]);
  const std::int64_t h0 = call.integer("h0");
  const std::string before =
      h0 >= 0 ? g.add("Unsqueeze", {call.in(static_cast<std::size_t>(h0)), g.list({1})})
              : g.add("Mul", {last_cell, g.number(0)});
  const Names parts =
      call.flag("reverse") ? Names{steps, before, last_cell} : Names{before, steps, last_cell};
  return g.add("Concat", parts, {{"axis", std::int64_t{1}}});
}

}  // namespace

void add_recurrent(Operators& all) {
  all["rnn"] = rnn;
  all["gru"] = gru;
  all["lstm"] = lstm;
}

}  // namespace sotto::nn::onnx
