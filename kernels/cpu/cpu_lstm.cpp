// All steps of an LSTM layer. Each thread takes some samples through all steps, so that threads
// synchronize once and the states of a thread's samples stay in its cache.
#include <algorithm>

#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/conv/conv_images.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gemm/gemm_kernel.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/per_sample/dot.h"
#include "kernels/host_device/fold_batch.h"
#include "kernels/host_device/lstm_layer.h"

namespace sotto {

namespace {

View rows_of(const View& x, std::int64_t t, Range samples) {
  return rows_at(x, t, samples.first, samples.count());
}

template <class T>
T* row(const View& x, std::int64_t n) {
  return x.as<T>() + n * x.stride[0];
}

// Turns the sums z of one sample into gates.
template <class T>
void open_gates(T* z, const T* bias, std::int64_t h) {
  for (std::int64_t j = 0; bias && j < 4 * h; ++j) z[j] += bias[j];
  for (std::int64_t j = 0; j < 2 * h; ++j) z[j] = math::sigmoid(z[j]);
  for (std::int64_t j = 2 * h; j < 3 * h; ++j) z[j] = math::tanh(z[j]);
  for (std::int64_t j = 3 * h; j < 4 * h; ++j) z[j] = math::sigmoid(z[j]);
}

template <class T>
void update_cell(const T* gates, const T* cell, T* __restrict next, T* __restrict tanh_cell,
                 T* __restrict state, std::int64_t h) {
  const T *i = gates, *f = i + h, *g = f + h, *o = g + h;
  for (std::int64_t j = 0; j < h; ++j) {
    const LstmCell<T> y = lstm_cell<T>({i[j], f[j], g[j], o[j]}, cell[j]);
    next[j] = y.cell;
    tanh_cell[j] = y.tanh_cell;
    state[j] = y.state;
  }
}

template <class T>
void step(const LstmLayer& layer, std::int64_t t, Range samples) {
  const std::int64_t h = layer.units();
  const auto at = [&](const View& x, std::int64_t place) { return rows_of(x, place, samples); };
  const View gates = at(layer.gates, t), tanh_cell = at(layer.tanh_cell, t),
             cell = at(layer.cells, layer.before(t)), next = at(layer.cells, layer.after(t)),
             state = at(layer.states, layer.after(t));
  simd_dispatch_avx512([&] {
    for (std::int64_t n = 0; n < samples.count(); ++n) {
      open_gates(row<T>(gates, n), layer.bias.as<T>(), h);
      update_cell(row<T>(gates, n), row<T>(cell, n), row<T>(next, n), row<T>(tanh_cell, n),
                  row<T>(state, n), h);
    }
  });
}

// The backward of one step for one sample; dcell is the gradient of the cell after the step before
// the call, of the cell before the step after it.
template <class T>
void step_grad(const T* gates, const T* cell, const T* tanh_cell, const T* dstate,
               T* __restrict dcell, T* __restrict dz, std::int64_t h) {
  const T *i = gates, *f = i + h, *g = f + h, *o = g + h;
  T *di = dz, *df = di + h, *dg = df + h, *dout = dg + h;
  for (std::int64_t j = 0; j < h; ++j) {
    const LstmCellGrad<T> y =
        lstm_cell_grad<T>({i[j], f[j], g[j], o[j]}, cell[j], tanh_cell[j], dstate[j], dcell[j]);
    di[j] = y.sums.i;
    df[j] = y.sums.f;
    dg[j] = y.sums.g;
    dout[j] = y.sums.o;
    dcell[j] = y.cell;
  }
}

// Calls f, with f's element type, for consecutive groups of samples: few enough that the data of a
// step stay in the cache, and that products read the weight without copying it.
template <class F>
void for_some_samples(const LstmLayer& layer, F&& f) {
  constexpr std::int64_t max = 64, min = 8;
  const std::int64_t n = layer.samples(), threads = thread_count();
  const std::int64_t needed = (n + max - 1) / max,
                     even = (needed + threads - 1) / threads * threads;
  const std::int64_t parts = std::max<std::int64_t>(1, std::min(n / min, even));
  const std::int64_t work = layer.steps() * layer.weight.numel() * (n / parts);
  parallel_for(parts, product_grain(work), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const Range some{part * n / parts, (part + 1) * n / parts};
      if (layer.gates.dtype == Dtype::f64) {
        f(double{}, some);
      } else {
        f(float{}, some);
      }
    }
  });
}

}  // namespace

void CpuBackend::lstm(const LstmLayer& layer) {
  // The transposed weight, in the order in which the products of all steps read it.
  const Matrix weight = matrix(layer.weight, 0);
  const Scratch turned(weight.cols, weight.rows, weight.dtype);
  copy_matrix(weight.transposed(), turned.matrix());
  View by_units = transposed(layer.weight);
  by_units.data = turned.matrix().data;
  by_units.stride[0] = weight.rows;
  by_units.stride[1] = 1;
  for_some_samples(layer, [&]<class T>(T, Range samples) {
    for (std::int64_t k = 0; k < layer.steps(); ++k) {
      const std::int64_t t = layer.step(k);
      gemm(rows_of(layer.states, layer.before(t), samples), by_units, 1,
           rows_of(layer.gates, t, samples));
      step<T>(layer, t, samples);
    }
  });
}

void CpuBackend::lstm_grad(const LstmLayer& layer, View dy, View dz, View dstate, View dcell,
                           View squares) {
  const std::int64_t h = layer.units();
  auto* const norms = squares.as<double>();
  for_some_samples(layer, [&]<class T>(T, Range samples) {
    const View dh = rows_of(dstate, 0, samples), dc = rows_of(dcell, 0, samples);
    for (std::int64_t k = layer.steps(); k-- > 0;) {
      const std::int64_t t = layer.step(k);
      const auto at = [&](const View& x, std::int64_t place) { return rows_of(x, place, samples); };
      const View dout = at(dy, t), gates = at(layer.gates, t), tanh_cell = at(layer.tanh_cell, t),
                 cell = at(layer.cells, layer.before(t)), d = at(dz, t);
      simd_dispatch([&] {
        for (std::int64_t n = 0; n < samples.count(); ++n) {
          T* const total = row<T>(dh, n);
          const T* const part = row<T>(dout, n);
          for (std::int64_t j = 0; j < h; ++j) total[j] += part[j];
          step_grad<T>(row<T>(gates, n), row<T>(cell, n), row<T>(tanh_cell, n), total,
                       row<T>(dc, n), row<T>(d, n), h);
          if (norms)
            norms[(samples.first + n) * layer.steps() + t] = squared_norm(row<T>(d, n), 4 * h);
        }
      });
      gemm(d, layer.weight, 0, dh);
    }
  });
}

}  // namespace sotto
