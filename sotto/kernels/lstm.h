// A layer of long short-term memory as one primitive, for backends that have it; elsewhere callers
// take its steps one by one.
#pragma once

#include "sotto/kernels/backend.h"

namespace sotto {

// A layer (Hochreiter and Schmidhuber 1997) over t steps of n samples, with h units. All views have
// neighbours along their last axis, and are all f32 or all f64.
struct LstmLayer {
  View gates;     // [n, t, 4 h]: before, the sums over the inputs; after, the gates i, f, g, o
  View states;    // [n, t + 1, h]: the state before the first step, and after each
  View cells;     // [n, t + 1, h]: the same of the cells
  View squashed;  // [n, t, h]: tanh of the cells after each step
  View weight;    // [4 h, h], of the state in the sums
  View bias;      // [4 h], or without data
  bool reverse = false;

  // Of t steps in the order of memory, the k-th that is taken; where in `states` and `cells` it
  // finds and leaves its own.
  std::int64_t steps() const { return gates.size[1]; }
  std::int64_t step(std::int64_t k) const { return reverse ? steps() - 1 - k : k; }
  std::int64_t before(std::int64_t step) const { return reverse ? step + 1 : step; }
  std::int64_t after(std::int64_t step) const { return reverse ? step : step + 1; }
};

class LstmKernels {
 public:
  virtual ~LstmKernels() = default;
  // Fills all but the first state and cell: z = gates + weight state + bias; i, f, o = sigmoid(z),
  // g = tanh(z), cell' = f cell + i g, state' = o tanh(cell').
  virtual void lstm(const LstmLayer& layer) = 0;
  // From dy [n, t, h], of the states after each step, to dz [n, t, 4 h], of the sums. dstate and
  // dcell [n, h] are the gradients of the last state and cell before, of the first ones after.
  virtual void lstm_grad(const LstmLayer& layer, View dy, View dz, View dstate, View dcell) = 0;
};

// Those of a backend that has them, else nullptr.
inline LstmKernels* lstm_kernels(Backend& backend) { return dynamic_cast<LstmKernels*>(&backend); }

}  // namespace sotto
