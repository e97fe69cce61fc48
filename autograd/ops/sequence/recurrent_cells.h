// One step of each recurrent cell and its derivative, on tensors; and the operands of the sequence
// op that consists of these steps.
#pragma once

#include <vector>

#include "autograd/ops/sequence/recurrent.h"

namespace sotto {

// The inputs of the recorded op, and the index of each optional one; -1 if it is absent.
struct OpInputs {
  std::vector<Var> inputs;
  int bias_ih = -1, bias_hh = -1, hr = -1, h0 = -1, c0 = -1;

  void add(int& place, const std::optional<Var>& x) {
    if (!x) return;
    place = static_cast<int>(inputs.size());
    inputs.push_back(*x);
  }
};

// The results of one step, with the tensors that its backward reads.
struct CellStep {
  std::vector<Tensor> saved;
  Tensor h;  // [n, hidden], before projection
  Tensor c;  // LSTM only
};

// `x_part` and `h_part` [n, gates hidden] are the two sums in the cell's equations; h and c are the
// state before the step.
CellStep cell_step(Cell cell, const Tensor& x_part, const Tensor& h_part, const Tensor& h,
                   const Tensor& c);

struct CellGradient {
  Tensor x_part, h_part;  // [n, gates hidden]
  Tensor h;               // the part that does not pass through h_part; undefined: none
  Tensor c;               // LSTM only
};

CellGradient cell_gradient(Cell cell, const CellStep& step, const Tensor& dh, const Tensor& dc);

}  // namespace sotto
