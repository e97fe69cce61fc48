// All steps of an LSTM layer. Threads share out the samples and run through all steps by
// themselves: they meet once, and the states of a thread's samples stay in its cache.
#include <algorithm>

#include "sotto/core/parallel.h"
#include "sotto/core/wide.h"
#include "sotto/kernels/cpu/cpu_backend.h"
#include "sotto/kernels/cpu/grain.h"
#include "sotto/kernels/cpu/images.h"
#include "sotto/kernels/fold_batch.h"
#include "sotto/kernels/math.h"

namespace sotto {

namespace {

// [n, k] of x [n, t, k] at one of t, or of x [n, k]: some of the samples.
View rows_at(const View& x, std::int64_t t, Range samples) {
  const int last = x.rank - 1;
  const std::int64_t offset = samples.first * x.stride[0] + (x.rank == 3 ? t * x.stride[1] : 0);
  View y;
  y.data = x.as<char>() + offset * static_cast<std::int64_t>(size_of(x.dtype));
  y.dtype = x.dtype;
  y.rank = 2;
  y.size[0] = samples.count();
  y.size[1] = x.size[last];
  y.stride[0] = x.stride[0];
  y.stride[1] = x.stride[last];
  return y;
}

template <class T>
T* row(const View& x, std::int64_t n) {
  return x.as<T>() + n * x.stride[0];
}

// Of one sample: the sums z become gates.
template <class T>
void open_gates(T* z, const T* bias, std::int64_t h) {
  for (std::int64_t j = 0; bias && j < 4 * h; ++j) z[j] += bias[j];
  for (std::int64_t j = 0; j < 2 * h; ++j) z[j] = math::sigmoid(z[j]);
  for (std::int64_t j = 2 * h; j < 3 * h; ++j) z[j] = math::tanh(z[j]);
  for (std::int64_t j = 3 * h; j < 4 * h; ++j) z[j] = math::sigmoid(z[j]);
}

template <class T>
void update_cell(const T* gates, const T* cell, T* next, T* squashed, T* state, std::int64_t h) {
  const T *i = gates, *f = i + h, *g = f + h, *o = g + h;
#pragma GCC ivdep
  for (std::int64_t j = 0; j < h; ++j) {
    next[j] = f[j] * cell[j] + i[j] * g[j];
    squashed[j] = math::tanh(next[j]);
    state[j] = o[j] * squashed[j];
  }
}

template <class T>
void step(const LstmLayer& layer, std::int64_t t, Range samples) {
  const std::int64_t h = layer.weight.size[1];
  const auto at = [&](const View& x, std::int64_t place) { return rows_at(x, place, samples); };
  const View gates = at(layer.gates, t), squashed = at(layer.squashed, t),
             cell = at(layer.cells, layer.before(t)), next = at(layer.cells, layer.after(t)),
             state = at(layer.states, layer.after(t));
  widely([&] {
    for (std::int64_t n = 0; n < samples.count(); ++n) {
      open_gates(row<T>(gates, n), layer.bias.as<T>(), h);
      update_cell(row<T>(gates, n), row<T>(cell, n), row<T>(next, n), row<T>(squashed, n),
                  row<T>(state, n), h);
    }
  });
}

// Of one sample; dcell passes from after the step to before it.
template <class T>
void step_grad(const T* gates, const T* cell, const T* squashed, const T* dstate, T* dcell, T* dz,
               std::int64_t h) {
  const T *i = gates, *f = i + h, *g = f + h, *o = g + h;
  T *di = dz, *df = di + h, *dg = df + h, *dout = dg + h;
#pragma GCC ivdep
  for (std::int64_t j = 0; j < h; ++j) {
    const T s = squashed[j], d = dcell[j] + dstate[j] * o[j] * (1 - s * s);
    di[j] = d * g[j] * i[j] * (1 - i[j]);
    df[j] = d * cell[j] * f[j] * (1 - f[j]);
    dg[j] = d * i[j] * (1 - g[j] * g[j]);
    dout[j] = dstate[j] * s * o[j] * (1 - o[j]);
    dcell[j] = d * f[j];
  }
}

// Calls f for shares of the samples, with f's element type. Products of very few rows may be
// rounded otherwise than those of many: no share is small, and results do not depend on their
// number.
template <class F>
void for_each_share(const LstmLayer& layer, F&& f) {
  constexpr std::int64_t unit = 16;
  const std::int64_t n = layer.gates.size[0], units = std::max<std::int64_t>(1, n / unit),
                     work = layer.steps() * layer.weight.numel() * unit;
  parallel_for(units, product_grain(work), [&](std::int64_t begin, std::int64_t end) {
    const Range share{begin * unit, end == units ? n : end * unit};
    if (layer.gates.dtype == Dtype::f64) {
      f(double{}, share);
    } else {
      f(float{}, share);
    }
  });
}

}  // namespace

void CpuBackend::lstm(const LstmLayer& layer) {
  for_each_share(layer, [&]<class T>(T, Range samples) {
    for (std::int64_t k = 0; k < layer.steps(); ++k) {
      const std::int64_t t = layer.step(k);
      gemm(rows_at(layer.states, layer.before(t), samples), transposed(layer.weight), 1,
           rows_at(layer.gates, t, samples));
      step<T>(layer, t, samples);
    }
  });
}

void CpuBackend::lstm_grad(const LstmLayer& layer, View dy, View dz, View dstate, View dcell) {
  const std::int64_t h = layer.weight.size[1];
  for_each_share(layer, [&]<class T>(T, Range samples) {
    const View dh = rows_at(dstate, 0, samples), dc = rows_at(dcell, 0, samples);
    for (std::int64_t k = layer.steps(); k-- > 0;) {
      const std::int64_t t = layer.step(k);
      const auto at = [&](const View& x, std::int64_t place) { return rows_at(x, place, samples); };
      const View dout = at(dy, t), gates = at(layer.gates, t), squashed = at(layer.squashed, t),
                 cell = at(layer.cells, layer.before(t)), d = at(dz, t);
      widely([&] {
        for (std::int64_t n = 0; n < samples.count(); ++n) {
          T* const total = row<T>(dh, n);
          const T* const part = row<T>(dout, n);
          for (std::int64_t j = 0; j < h; ++j) total[j] += part[j];
          step_grad<T>(row<T>(gates, n), row<T>(cell, n), row<T>(squashed, n), total, row<T>(dc, n),
                       row<T>(d, n), h);
        }
      });
      gemm(d, layer.weight, 0, dh);
    }
  });
}

}  // namespace sotto
