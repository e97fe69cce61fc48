// Recurrent networks over whole sequences. One op covers all steps of a layer in one direction, and
// gives each weight one factored per-sample gradient over all of them, not one for each step.
#pragma once

#include <optional>

#include "autograd/tape.h"

namespace sotto {

enum class Cell {
  tanh,  // h' = tanh(W_ih x + b_ih + W_hh h + b_hh)
  relu,  // the same with max(0, .)
  gru,   // Cho et al. 2014, with rows in the order reset, update, new
  lstm,  // Hochreiter and Schmidhuber 1997, rows in the order input, forget, cell, output
};

// How many blocks of `hidden` rows the weights of a cell have: 1, 3 or 4.
int gate_count(Cell cell);

// All shared by the samples. With g = gate_count() hidden: ih [g, in], hh [g, out], biases [g], and
// for an LSTM with projection (Sak et al. 2014) hr [out, hidden]; out is `hidden` without one.
struct RecurrentWeights {
  Var ih = {};
  Var hh = {};
  std::optional<Var> bias_ih = {};
  std::optional<Var> bias_hh = {};
  std::optional<Var> hr = {};
};

struct RecurrentOptions {
  // From the last valid step to the first.
  bool reverse = false;
  // How many steps of each sample are valid, [n] i64 within 0 .. t; all when undefined. At other
  // steps the output is 0 and nothing in the input matters; without a step the first states are the
  // last.
  Tensor lengths = {};
};

struct RecurrentResult {
  Var output;            // [n, t, out]
  Var h;                 // [n, out], after the last step taken
  std::optional<Var> c;  // [n, hidden], LSTM
};

// x [n, t, in] with the samples first and at least one step; h0 [n, out] and c0 [n, hidden] are
// zero where not given.
RecurrentResult recurrent(Cell cell, const Var& x, const RecurrentWeights& weights,
                          const std::optional<Var>& h0 = std::nullopt,
                          const std::optional<Var>& c0 = std::nullopt,
                          const RecurrentOptions& options = {});

// The same in segments of so many steps, of which backward runs one at a time again (segment.h):
// the tape keeps the input, the outputs and the states between segments.
RecurrentResult recurrent_in_segments(std::int64_t steps, Cell cell, const Var& x,
                                      const RecurrentWeights& weights,
                                      const std::optional<Var>& h0 = std::nullopt,
                                      const std::optional<Var>& c0 = std::nullopt,
                                      const RecurrentOptions& options = {});

}  // namespace sotto
