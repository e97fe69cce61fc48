// Weighted sums of per-sample gradients, in double.
#pragma once

#include "kernels/cuda/columns.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/runtime/device_backend.h"
#include "kernels/cuda/runtime/scratch.h"
#include "kernels/host_device/rounded_term.h"

namespace sotto {

struct WidenWeights {
  View w;
  double* y;
  HD void operator()(std::int64_t n) const {
    y[n] = load_as<double>(w.data, w.dtype, n * w.stride[0]);
  }
};

// Weights of samples as an array of doubles: a copy, unless they are one.
class Weights {
 public:
  template <class Exec>
  Weights(const Exec& exec, const View& w)
      : copied_(w.dtype != Dtype::f64 || w.stride[0] != 1),
        room_(exec.device(), copied_ ? w.size[0] : 0),
        data_(copied_ ? room_.data() : w.as<const double>()) {
    if (copied_) exec.for_each(w.size[0], WidenWeights{w, room_.data()});
  }
  const double* data() const { return data_; }

 private:
  bool copied_;
  Scratch<double> room_;
  const double* data_;
};

// One part of a column's sum over samples; rows with weight 0 are not read.
template <class T, int lanes>
struct WeightedParts {
  std::int64_t samples, width, parts;
  const T* x;
  const double* w;
  double* partial;
  HD void operator()(std::int64_t index) const {
    const std::int64_t packs = width / lanes, column = index % packs * lanes, at = index / packs;
    const Part part(samples, parts, at);
    double sums[lanes] = {};
    each_column<lanes>(
        part.first, part.last, x + column, width, [this](std::int64_t n) { return w[n]; },
        [&sums](int lane, double weight, double v) { sums[lane] += weight * v; });
    put_columns(sums, partial + at * width + column);
  }
};

// Adds the rounded terms of some columns.
template <class T, int lanes>
struct AddRoundedColumn {
  std::int64_t samples, width;
  const T* x;
  const double* w;
  double spacing;
  double* y;
  HD void operator()(std::int64_t index) const {
    const std::int64_t column = index * lanes;
    double sums[lanes];
    get_columns(y + column, sums);
    each_column<lanes>(
        0, samples, x + column, width, [this](std::int64_t n) { return w[n]; },
        [this, &sums](int lane, double weight, double v) {
          sums[lane] += rounded_term(weight * v, spacing);
        });
    put_columns(sums, y + column);
  }
};

// True if rows of `width` elements and their sums can be read in packs of columns.
template <class T>
bool packed_rows_of(std::int64_t width, const void* x, const double* y) {
  return width % column_lanes<T> == 0 && aligned(x) && aligned(y);
}

template <class Exec>
void DeviceBackend<Exec>::weighted_sum(View x, View w, double beta, View y) {
  const Exec exec = execution("weighted_sum", {&x, &w, &y});
  const std::int64_t samples = x.size[0], width = x.size[1];
  if (width == 0) return;
  const Weights weights(exec, w);
  AxisList columns;
  columns.append({width, 1}, false);
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    const std::int64_t parts = count_row_parts<T>(samples, width);
    const Scratch<double> partial(exec.device(), width * parts);
    with_columns<T>(packed_rows_of<T>(width, x.data, partial.data()), [&](auto lanes) {
      exec.for_each(width / lanes * parts,
                    WeightedParts<T, lanes>{samples, width, parts, x.as<const T>(), weights.data(),
                                            partial.data()});
    });
    fold_parts(exec, FoldParts<SumFold>{columns, width, parts, partial.data(), beta, y});
  });
}

template <class Exec>
void DeviceBackend<Exec>::add_rounded(View x, View w, double spacing, View y) {
  const Exec exec = execution("add_rounded", {&x, &w, &y});
  const std::int64_t samples = x.size[0], width = x.size[1];
  const Weights weights(exec, w);
  auto* const sums = y.as<double>();
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    with_columns<T>(packed_rows_of<T>(width, x.data, sums), [&](auto lanes) {
      exec.for_each(width / lanes, AddRoundedColumn<T, lanes>{samples, width, x.as<const T>(),
                                                              weights.data(), spacing, sums});
    });
  });
}

}  // namespace sotto
