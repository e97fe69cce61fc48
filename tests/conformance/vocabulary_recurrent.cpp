#include "nn/layers/recurrent_layers.h"
#include "tests/conformance/vocabulary.h"

namespace sotto::conformance {

namespace {

Cell cell_of(const std::string& kind, const Call& call) {
  if (kind == "LSTM") return Cell::lstm;
  if (kind == "GRU") return Cell::gru;
  return call.arg<std::string>("nonlinearity") == "relu" ? Cell::relu : Cell::tanh;
}

RecurrentWeights weights_of(const Call& call, const std::string& suffix) {
  return {call["weight_ih" + suffix], call["weight_hh" + suffix], call.maybe("bias_ih" + suffix),
          call.maybe("bias_hh" + suffix), call.maybe("weight_hr" + suffix)};
}

Values layers(const std::string& kind, const Call& call) {
  const bool both = call.arg<bool>("bidirectional"), batch_first = call.arg<bool>("batch_first");
  std::vector<RecurrentWeights> weights;
  for (int layer = 0; layer < call.arg<int>("num_layers"); ++layer) {
    weights.push_back(weights_of(call, fmt::format("_l{}", layer)));
    if (both) weights.push_back(weights_of(call, fmt::format("_l{}_reverse", layer)));
  }
  nn::RecurrentInputs inputs{call.maybe("h0"), call.maybe("c0"), {}};
  if (const auto lengths = call.maybe("lengths")) inputs.lengths = lengths->value();
  const Var x = batch_first ? call["x"] : transpose(call["x"], 0, 1);
  const nn::RecurrentOutputs y =
      nn::run_layers(cell_of(kind, call), x, weights, inputs, {.bidirectional = both});
  Values named{{"y", batch_first ? y.output : transpose(y.output, 0, 1)}, {"h_n", y.h}};
  if (y.c) named.emplace("c_n", *y.c);
  return named;
}

Values cell(const std::string& kind, const Call& call) {
  const RecurrentResult y = recurrent(cell_of(kind, call), unsqueeze(call["x"], 1),
                                      weights_of(call, ""), call.maybe("h"), call.maybe("c"));
  Values named{{"h", y.h}};
  if (y.c) named.emplace("c", *y.c);
  return named;
}

}  // namespace

void add_recurrent(Vocabulary& vocabulary) {
  for (const std::string kind : {"RNN", "GRU", "LSTM"}) {
    vocabulary[kind] = [kind](const Call& call) { return layers(kind, call); };
    vocabulary[kind + "Cell"] = [kind](const Call& call) { return cell(kind, call); };
  }
}

}  // namespace sotto::conformance
