// LSTM layers: each step is a product and one launch for all units.
#pragma once

#include "kernels/cuda/cuda_map.h"
#include "kernels/cuda/runtime/device_backend.h"
#include "kernels/host_device/fold_batch.h"
#include "kernels/host_device/lstm_layer.h"

namespace sotto {

// A matrix with one row per sample: x [n, t, k] at one step, or x [n, k].
template <class T>
struct StepRows {
  T* data;
  std::int64_t stride;

  StepRows(const View& x, std::int64_t t)
      : data(x.as<T>() + (x.rank == 3 ? t * x.stride[1] : 0)), stride(x.stride[0]) {}
  HD T* operator[](std::int64_t sample) const { return data + sample * stride; }
};

// x [n, t, k] as [n t, k], row-major.
inline View all_rows(View x) {
  x.rank = 2;
  x.size[0] *= x.size[1];
  x.size[1] = x.size[2];
  x.stride[0] = x.stride[1];
  x.stride[1] = 1;
  return x;
}

// The gates of one unit of one sample, from a row of LstmLayer::gates.
template <class T>
HD LstmGates<T> gates_of(const T* gates, std::int64_t unit, std::int64_t h) {
  return {gates[unit], gates[h + unit], gates[2 * h + unit], gates[3 * h + unit]};
}
template <class T>
HD void put_gates(const LstmGates<T>& y, T* gates, std::int64_t unit, std::int64_t h) {
  gates[unit] = y.i;
  gates[h + unit] = y.f;
  gates[2 * h + unit] = y.g;
  gates[3 * h + unit] = y.o;
}

// One unit of one sample: from the sums to the state.
template <class T>
struct LstmForward {
  StepRows<T> gates, before, after, tanh_cell, state;
  const T* bias;
  std::int64_t h;

  LstmForward(const LstmLayer& layer, std::int64_t t)
      : gates(layer.gates, t),
        before(layer.cells, layer.before(t)),
        after(layer.cells, layer.after(t)),
        tanh_cell(layer.tanh_cell, t),
        state(layer.states, layer.after(t)),
        bias(layer.bias.as<T>()),
        h(layer.units()) {}
  HD void operator()(std::int64_t index) const {
    const std::int64_t n = index / h, unit = index % h;
    LstmGates<T> z = gates_of(gates[n], unit, h);
    if (bias) {
      const LstmGates<T> b = gates_of(bias, unit, h);
      z = {z.i + b.i, z.f + b.f, z.g + b.g, z.o + b.o};
    }
    const LstmGates<T> open{math::sigmoid(z.i), math::sigmoid(z.f), math::tanh(z.g),
                            math::sigmoid(z.o)};
    put_gates(open, gates[n], unit, h);
    const LstmCell<T> y = lstm_cell(open, before[n][unit]);
    after[n][unit] = y.cell;
    tanh_cell[n][unit] = y.tanh_cell;
    state[n][unit] = y.state;
  }
};

// The backward of LstmForward: from the gradients of state and cell to those of the sums.
template <class T>
struct LstmBackward {
  StepRows<T> gates, before, tanh_cell, dy, dz, dstate, dcell;
  std::int64_t h;

  LstmBackward(const LstmLayer& layer, std::int64_t t, const View& dy, const View& dz,
               const View& dstate, const View& dcell)
      : gates(layer.gates, t),
        before(layer.cells, layer.before(t)),
        tanh_cell(layer.tanh_cell, t),
        dy(dy, t),
        dz(dz, t),
        dstate(dstate, 0),
        dcell(dcell, 0),
        h(layer.units()) {}
  HD void operator()(std::int64_t index) const {
    const std::int64_t n = index / h, unit = index % h;
    const LstmCellGrad<T> y =
        lstm_cell_grad(gates_of(gates[n], unit, h), before[n][unit], tanh_cell[n][unit],
                       dstate[n][unit] + dy[n][unit], dcell[n][unit]);
    put_gates(y.sums, dz[n], unit, h);
    dcell[n][unit] = y.cell;
  }
};

template <class Exec>
void DeviceBackend<Exec>::lstm(const LstmLayer& layer) {
  const std::int64_t n = layer.samples();
  for (std::int64_t k = 0; k < layer.steps(); ++k) {
    const std::int64_t t = layer.step(k);
    gemm(rows_at(layer.states, layer.before(t), 0, n), transposed(layer.weight), 1,
         rows_at(layer.gates, t, 0, n));
    const Exec exec = execution("lstm", {&layer.gates, &layer.cells, &layer.weight});
    with_arithmetic(layer.gates.dtype, [&](auto a) {
      exec.for_each(n * layer.units(), LstmForward<decltype(a)>(layer, t));
    });
  }
}

template <class Exec>
void DeviceBackend<Exec>::lstm_grad(const LstmLayer& layer, View dy, View dz, View dstate,
                                    View dcell, View squares) {
  const std::int64_t n = layer.samples();
  for (std::int64_t k = layer.steps(); k-- > 0;) {
    const std::int64_t t = layer.step(k);
    {
      const Exec exec = execution("lstm_grad", {&layer.gates, &layer.weight, &dy, &dz});
      with_arithmetic(layer.gates.dtype, [&](auto a) {
        exec.for_each(n * layer.units(),
                      LstmBackward<decltype(a)>(layer, t, dy, dz, dstate, dcell));
      });
    }
    gemm(rows_at(dz, t, 0, n), layer.weight, 0, dstate);
  }
  if (!squares.data) return;
  const View rows = all_rows(dz);
  View each = squares;
  each.rank = 1;
  each.size[0] = squares.numel();
  each.stride[0] = 1;
  row_dot(rows, rows, each);
}

}  // namespace sotto
