// An LSTM layer (Hochreiter and Schmidhuber 1997) as one primitive: its operands, and the
// arithmetic of one unit in one step, on every device.
#pragma once

#include "core/view.h"
#include "kernels/functors/scalar_math.h"

namespace sotto {

// A layer over t steps of n samples, with h units. All views have stride 1 along the last axis, and
// are all f32 or all f64.
struct LstmLayer {
  View gates;      // [n, t, 4 h]: in: sums over the inputs; out: the gates i, f, g, o
  View states;     // [n, t + 1, h]: the initial state and the state after each step
  View cells;      // [n, t + 1, h]: the initial cell and the cell after each step
  View tanh_cell;  // [n, t, h]: tanh of the cell after each step
  View weight;     // [4 h, h], applied to the state
  View bias;       // [4 h], or without data
  bool reverse = false;

  std::int64_t samples() const { return gates.size[0]; }
  std::int64_t units() const { return weight.size[1]; }
  // step(k): the position in time, out of t, of the k-th step taken. before(step), after(step): the
  // indices in `states` and `cells` of the state that the step reads and of the one it writes.
  std::int64_t steps() const { return gates.size[1]; }
  std::int64_t step(std::int64_t k) const { return reverse ? steps() - 1 - k : k; }
  std::int64_t before(std::int64_t step) const { return reverse ? step + 1 : step; }
  std::int64_t after(std::int64_t step) const { return reverse ? step : step + 1; }
};

// Samples first .. first + count - 1 of x [n, t, k] at step t, or of x [n, k]: [count, k].
inline View rows_at(const View& x, std::int64_t t, std::int64_t first, std::int64_t count) {
  const int last = x.rank - 1;
  const std::int64_t offset = first * x.stride[0] + (x.rank == 3 ? t * x.stride[1] : 0);
  View y;
  y.data = x.as<char>() + offset * static_cast<std::int64_t>(size_of(x.dtype));
  y.dtype = x.dtype;
  y.rank = 2;
  y.size[0] = count;
  y.size[1] = x.size[last];
  y.stride[0] = x.stride[0];
  y.stride[1] = x.stride[last];
  return y;
}

// The gates of one unit in one step.
template <class T>
struct LstmGates {
  T i, f, g, o;
};
template <class T>
struct LstmCell {
  T cell, tanh_cell, state;
};
template <class T>
HD LstmCell<T> lstm_cell(const LstmGates<T>& gates, T before) {
  const T cell = gates.f * before + gates.i * gates.g;
  const T tanh_cell = math::tanh(cell);
  return {cell, tanh_cell, gates.o * tanh_cell};
}

// Gradients of one unit in one step: of the sums z behind the gates, and of the cell before the
// step, computed from those of the state and the cell after it.
template <class T>
struct LstmCellGrad {
  LstmGates<T> sums;
  T cell;
};
template <class T>
HD LstmCellGrad<T> lstm_cell_grad(const LstmGates<T>& y, T before, T tanh_cell, T dstate, T dcell) {
  const T d = dcell + dstate * y.o * (1 - tanh_cell * tanh_cell);
  return {{d * y.g * y.i * (1 - y.i), d * before * y.f * (1 - y.f), d * y.i * (1 - y.g * y.g),
           dstate * tanh_cell * y.o * (1 - y.o)},
          d * y.f};
}

}  // namespace sotto
