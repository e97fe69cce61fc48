// Recurrent networks over whole sequences. One op covers all steps of a layer in one direction, so
// that each weight has one factored per-sample gradient over all steps instead of one per step.
#pragma once

#include <optional>

#include "autograd/tape.h"

namespace sotto {

enum class Cell {
  tanh,  // h' = tanh(W_ih x + b_ih + W_hh h + b_hh)
  relu,  // h' = max(0, W_ih x + b_ih + W_hh h + b_hh)
  gru,   // Cho et al. 2014, with rows in the order reset, update, new
  lstm,  // Hochreiter and Schmidhuber 1997, rows in the order input, forget, cell, output
};

// The number of blocks of `hidden` rows in the weights of a cell: 1, 3 or 4.
int gate_count(Cell cell);

// The weights, shared by all samples. With g = gate_count() hidden: ih [g, in], hh [g, out], biases
// [g], and for an LSTM with projection (Sak et al. 2014) hr [out, hidden]; without one, out is
// `hidden`.
struct RecurrentWeights {
  Var ih = {};                      // [gates * hidden, in]
  Var hh = {};                      // [gates * hidden, out]
  std::optional<Var> bias_ih = {};  // [gates * hidden]
  std::optional<Var> bias_hh = {};  // [gates * hidden]
  std::optional<Var> hr = {};       // [out, hidden]
};

// The direction, and the number of valid steps of each sequence.
struct SequenceOptions {
  // Processes the steps from the last valid one to the first.
  bool reverse = false;
  // The number of valid steps of each sample, [n] i64 in 0 .. t; undefined: all. At other steps the
  // output is 0 and the input is ignored; a sample without valid steps keeps its initial states.
  // Throws on a private tape for a shared x (Tape::check_plain_rows).
  Tensor lengths = {};
};

struct RecurrentResult {
  Var output;            // [n, t, out]
  Var h;                 // [n, out], after the last step taken
  std::optional<Var> c;  // [n, hidden], LSTM only
};

// x [n, t, in] with the samples first and at least one step; h0 [n, out] and c0 [n, hidden] default
// to zero. Throws std::invalid_argument for shapes and types that do not fit.
RecurrentResult recurrent(Cell cell, const Var& x, const RecurrentWeights& weights,
                          const std::optional<Var>& h0 = std::nullopt,
                          const std::optional<Var>& c0 = std::nullopt,
                          const SequenceOptions& options = {});

// recurrent() in checkpointed segments of `steps` steps, which backward recomputes one at a time
// (segment.h). The tape keeps the input, the outputs and the states between segments.
RecurrentResult recurrent_in_segments(std::int64_t steps, Cell cell, const Var& x,
                                      const RecurrentWeights& weights,
                                      const std::optional<Var>& h0 = std::nullopt,
                                      const std::optional<Var>& c0 = std::nullopt,
                                      const SequenceOptions& options = {});

}  // namespace sotto
