// Rows, read by threads along neighbouring columns: 16 bytes of a row at a time if these are
// aligned, as decided at launch, and several rows read before they are used. A column's rows come
// in the same order either way.
#pragma once

#include "kernels/cuda/cuda_map.h"

namespace sotto {

// Calls f(lane, weight(i), x[i * stride + lane]) for rows i from `first` to before `end`; rows of
// weight 0 are not read.
template <int lanes, class T, class Weight, class F>
HD void each_column(std::int64_t first, std::int64_t end, const T* x, std::int64_t stride,
                    const Weight& weight, const F& f) {
  constexpr int ahead = lanes > 1 ? 4 : 8;
  for (std::int64_t i = first; i < end; i += ahead) {
    double weights[ahead];
    Pack<T, lanes> values[ahead];
    for (int k = 0; k < ahead; ++k) weights[k] = i + k < end ? weight(i + k) : 0;
    for (int k = 0; k < ahead; ++k) {
      if (weights[k] != 0)
        values[k] = *reinterpret_cast<const Pack<T, lanes>*>(x + (i + k) * stride);
    }
    for (int k = 0; k < ahead; ++k) {
      if (weights[k] == 0) continue;
      for (int lane = 0; lane < lanes; ++lane)
        f(lane, weights[k], static_cast<double>(acc_t<T>(values[k].value[lane])));
    }
  }
}

// Sums of `lanes` neighbours in memory, two at a time where there are several: these are aligned.
template <int lanes>
using ColumnPack = Pack<double, (lanes > 1 ? 2 : 1)>;

template <int lanes>
HD void put_columns(const double (&sums)[lanes], double* y) {
  constexpr int together = lanes > 1 ? 2 : 1;
  for (int lane = 0; lane < lanes; lane += together) {
    ColumnPack<lanes> some;
    for (int k = 0; k < together; ++k) some.value[k] = sums[lane + k];
    *reinterpret_cast<ColumnPack<lanes>*>(y + lane) = some;
  }
}
template <int lanes>
HD void get_columns(const double* y, double (&sums)[lanes]) {
  constexpr int together = lanes > 1 ? 2 : 1;
  for (int lane = 0; lane < lanes; lane += together) {
    const auto some = *reinterpret_cast<const ColumnPack<lanes>*>(y + lane);
    for (int k = 0; k < together; ++k) sums[lane + k] = some.value[k];
  }
}

// The columns of type T that a thread may have.
template <class T>
inline constexpr int column_lanes = pack_bytes / static_cast<int>(sizeof(T));

inline bool aligned(const void* x) { return reinterpret_cast<std::uintptr_t>(x) % pack_bytes == 0; }

// Calls f(lanes), a constant: column_lanes<T> where packs fit, else 1.
template <class T, class F>
void with_columns(bool packs, const F& f) {
  if (packs)
    f(std::integral_constant<int, column_lanes<T>>{});
  else
    f(std::integral_constant<int, 1>{});
}

}  // namespace sotto
