// One step of each recurrent cell and its derivative, on tensors, and the operands of the sequence
// op that is made of them.
#pragma once

#include <vector>

#include "autograd/ops/sequence/recurrent.h"

namespace sotto {

// The inputs of the recorded op, and at which place each optional one stands; -1 for none.
struct Places {
  std::vector<Var> inputs;
  int bias_ih = -1, bias_hh = -1, hr = -1, h0 = -1, c0 = -1;

  void add(int& place, const std::optional<Var>& x) {
    if (!x) return;
    place = static_cast<int>(inputs.size());
    inputs.push_back(*x);
  }
};

// What one step leaves for backward.
struct CellStep {
  std::vector<Tensor> saved;
  Tensor h;  // [n, hidden], before projection
  Tensor c;  // LSTM
};

// `x_part` and `h_part` [n, gates hidden] are the two sums of the cell's equations; h, c the state
// before the step.
CellStep cell_step(Cell cell, const Tensor& x_part, const Tensor& h_part, const Tensor& h,
                   const Tensor& c);

struct CellGradient {
  Tensor x_part, h_part;  // [n, gates hidden]
  Tensor h;               // what does not pass through h_part; undefined for none
  Tensor c;               // LSTM
};

CellGradient cell_gradient(Cell cell, const CellStep& step, const Tensor& dh, const Tensor& dc);

}  // namespace sotto
