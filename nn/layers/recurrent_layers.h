// Recurrent networks of one or more layers, in one or both directions, and single cells. Parameters
// are named weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_hr_l0: the layer's number,
// and "_reverse" for the second direction. All are initially uniform in +-1 / sqrt(hidden).
#pragma once

#include <array>
#include <vector>

#include "autograd/ops/sequence/recurrent.h"
#include "nn/module.h"

namespace sotto::nn {

// Options of RNN, GRU and LSTM, with PyTorch's names.
struct RecurrentOptions {
  std::int64_t num_layers = 1;  // one above the other
  bool bias = true;             // of inputs and states
  bool batch_first = false;     // input and output [n, t, ...] instead of [t, n, ...]
  double dropout = 0;           // between layers
  bool bidirectional = false;   // a second direction, from the last step
  std::int64_t proj_size = 0;   // LSTM only; 0 for none
  // Activation checkpoints: backward recomputes this many steps at a time, and only the states
  // between them are kept. 0 keeps everything.
  std::int64_t segment_steps = 0;
};

// Optional arguments of a run: the initial states, h0 [layers * directions, n, out] and, for an
// LSTM, c0 [layers * directions, n, hidden]; and the number of valid steps of each sample.
struct RecurrentInputs {
  std::optional<Var> h0 = {};  // zero if unset
  std::optional<Var> c0 = {};  // zero if unset; LSTM only
  Tensor lengths = {};         // [n] i64; all steps if undefined
};

// h and c are the states after the last valid step, in the layout of h0 and c0.
struct RecurrentOutputs {
  Var output;            // [n, t, directions * out] or [t, n, ...]; 0 at invalid steps
  Var h;                 // [layers * directions, n, out]
  std::optional<Var> c;  // LSTM only
};

// The base of RNN, GRU and LSTM. Call run() for lengths and states.
//
//   LSTM lstm(32, 64, {.batch_first = true});
//   const RecurrentOutputs y = lstm.run(x, {.lengths = lengths});
class RecurrentLayers : public Module {
 public:
  Var forward(const Var& x) override { return run(x).output; }
  // Runs all layers. Throws std::invalid_argument for shapes that do not fit.
  RecurrentOutputs run(const Var& x, const RecurrentInputs& inputs = {});
  void visit(const Visitor& visitor) override;

  // The parameters of one layer and direction.
  struct Weights {
    std::string suffix;  // "_l0_reverse"
    // [gates * hidden, in], [gates * hidden, out], biases [gates * hidden] or null, and the
    // projection [out, hidden] or null.
    std::unique_ptr<Parameter> ih, hh, bias_ih, bias_hh, hr;
  };
  // Layer by layer; within a layer the forward direction first.
  std::vector<Weights> weights;

 protected:
  // Features of the input and of the state.
  RecurrentLayers(Cell cell, std::int64_t input, std::int64_t hidden,
                  const RecurrentOptions& options);

 private:
  Cell cell_;
  RecurrentOptions options_;
};

// A recurrent network (Elman 1990): h = tanh(W_ih x + b_ih + W_hh h + b_hh).
class RNN final : public RecurrentLayers {
 public:
  enum class Nonlinearity { tanh, relu };
  // Features of the input and of the state.
  RNN(std::int64_t input, std::int64_t hidden, const RecurrentOptions& options = {},
      Nonlinearity nonlinearity = Nonlinearity::tanh)
      : RecurrentLayers(nonlinearity == Nonlinearity::tanh ? Cell::tanh : Cell::relu, input, hidden,
                        options) {}
};

// Gated recurrent units (Cho et al. 2014), with PyTorch's equations.
class GRU final : public RecurrentLayers {
 public:
  // Features of the input and of the state.
  GRU(std::int64_t input, std::int64_t hidden, const RecurrentOptions& options = {})
      : RecurrentLayers(Cell::gru, input, hidden, options) {}
};

// Long short-term memory (Hochreiter and Schmidhuber 1997), with PyTorch's equations.
class LSTM final : public RecurrentLayers {
 public:
  // Features of the input and of the state.
  LSTM(std::int64_t input, std::int64_t hidden, const RecurrentOptions& options = {})
      : RecurrentLayers(Cell::lstm, input, hidden, options) {}
};

// The base of cells, which compute one step: x [n, input], states [n, hidden], zero if not given.
// Parameters weight_ih, weight_hh, bias_ih, bias_hh.
class RecurrentCell : public Module {
 public:
  struct State {
    Var h;                 // [layers * directions, n, out]
    std::optional<Var> c;  // LSTM only
  };
  Var forward(const Var& x) override { return step(x).h; }
  // Computes one step from the states h and c; unset ones are zero.
  State step(const Var& x, const std::optional<Var>& h = std::nullopt,
             const std::optional<Var>& c = std::nullopt);
  void visit(const Visitor& visitor) override;

  // [gates * hidden, input], [gates * hidden, hidden], and biases [gates * hidden] or null.
  std::unique_ptr<Parameter> weight_ih, weight_hh, bias_ih, bias_hh;

 protected:
  // Features of the input and of the state.
  RecurrentCell(Cell cell, std::int64_t input, std::int64_t hidden, bool bias);

 private:
  Cell cell_;
};

// One step of an RNN: its hidden state is h' = tanh(W_ih x + b_ih + W_hh h + b_hh).
class RNNCell final : public RecurrentCell {
 public:
  // Features of the input and of the state.
  RNNCell(std::int64_t input, std::int64_t hidden, bool bias = true,
          RNN::Nonlinearity nonlinearity = RNN::Nonlinearity::tanh)
      : RecurrentCell(nonlinearity == RNN::Nonlinearity::tanh ? Cell::tanh : Cell::relu, input,
                      hidden, bias) {}
};

// One step of a GRU (Cho et al. 2014), with its hidden state h.
class GRUCell final : public RecurrentCell {
 public:
  // Features of the input and of the state.
  GRUCell(std::int64_t input, std::int64_t hidden, bool bias = true)
      : RecurrentCell(Cell::gru, input, hidden, bias) {}
};

// One step of an LSTM, with its hidden state h and its cell state c.
class LSTMCell final : public RecurrentCell {
 public:
  // Features of the input and of the state.
  LSTMCell(std::int64_t input, std::int64_t hidden, bool bias = true)
      : RecurrentCell(Cell::lstm, input, hidden, bias) {}
};

// Runs layers on weights that need not be a module's own: `weights` in the order of
// RecurrentLayers::weights, x [n, t, in].
struct LayeredOptions {
  bool bidirectional = false;      // a second direction, from the last step
  double dropout = 0;              // between layers
  std::int64_t segment_steps = 0;  // as in RecurrentOptions
};
// Returns the outputs and final states as RecurrentLayers::run() does, with samples as axis 0.
RecurrentOutputs run_layers(Cell cell, const Var& x, const std::vector<RecurrentWeights>& weights,
                            const RecurrentInputs& inputs, const LayeredOptions& options);

}  // namespace sotto::nn
