// Softmax and normalisation, a team of threads for each row; sums over a row are taken in double.
#pragma once

#include <cmath>

#include "sotto/kernels/cuda/device_backend.h"
#include "sotto/kernels/cuda/folding.h"
#include "sotto/kernels/cuda/map.h"
#include "sotto/kernels/math.h"

namespace sotto {

// sum_i term(i) over the row, for all threads.
template <class Team, class F>
HD double team_sum(const Team& team, std::int64_t count, F term) {
  double sum = 0;
  for (std::int64_t i = team.rank(); i < count; i += team.size()) {
    sum += static_cast<double>(term(i));
  }
  return team.fold(Folding{Reduction::sum}, sum);
}

template <class T>
struct Softmax {
  std::int64_t k;
  bool logarithm;
  const T* x;
  T* y;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t row) const {
    using A = acc_t<T>;
    const T* const a = x + row * k;
    double most = -HUGE_VAL;
    for (std::int64_t i = team.rank(); i < k; i += team.size()) {
      most = MaxFold::fold(most, static_cast<double>(A(a[i])));
    }
    const A top = static_cast<A>(team.fold(Folding{Reduction::max}, most));
    const double sum = team_sum(team, k, [&](std::int64_t i) { return math::exp(A(a[i]) - top); });
    // Taken off after the maximum: added to a large one first, it would be rounded away.
    const A log_sum = static_cast<A>(std::log(sum));
    const A factor = static_cast<A>(1 / sum);
    for (std::int64_t i = team.rank(); i < k; i += team.size()) {
      const A shifted = A(a[i]) - top;
      y[row * k + i] = logarithm ? T(shifted - log_sum) : T(math::exp(shifted) * factor);
    }
  }
};

template <class T>
struct SoftmaxGrad {
  std::int64_t k;
  bool logarithm;
  const T *y, *dy;
  T* dx;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t row) const {
    using A = acc_t<T>;
    const T *const p = y + row * k, *const d = dy + row * k;
    const A s = static_cast<A>(
        team_sum(team, k, [&](std::int64_t i) { return logarithm ? A(d[i]) : A(d[i]) * A(p[i]); }));
    for (std::int64_t i = team.rank(); i < k; i += team.size()) {
      dx[row * k + i] =
          logarithm ? T(A(d[i]) - math::exp(A(p[i])) * s) : T(A(p[i]) * (A(d[i]) - s));
    }
  }
};

template <class T>
struct Normalize {
  std::int64_t k;
  double eps;
  bool centered;
  const T* x;
  T* y;
  acc_t<T>* rstd;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t row) const {
    using A = acc_t<T>;
    const T* const a = x + row * k;
    const auto value = [&](std::int64_t i) { return static_cast<double>(A(a[i])); };
    const double mean = centered ? team_sum(team, k, value) / static_cast<double>(k) : 0;
    const double square =
        team_sum(team, k, [&](std::int64_t i) { return (value(i) - mean) * (value(i) - mean); });
    const double r = 1 / std::sqrt(square / static_cast<double>(k) + eps);
    if (team.rank() == 0) rstd[row] = static_cast<A>(r);
    for (std::int64_t i = team.rank(); i < k; i += team.size()) {
      y[row * k + i] = T(static_cast<A>((value(i) - mean) * r));
    }
  }
};

// dx = rstd (dy - mean(dy) - y mean(dy y)), without the second term when not centered.
template <class T>
struct NormalizeGrad {
  std::int64_t k;
  bool centered;
  const T *y, *dy;
  const acc_t<T>* rstd;
  T* dx;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t row) const {
    using A = acc_t<T>;
    const T *const p = y + row * k, *const d = dy + row * k;
    const auto count = static_cast<double>(k);
    const auto slope_at = [&](std::int64_t i) { return static_cast<double>(A(d[i])); };
    const A mean = centered ? static_cast<A>(team_sum(team, k, slope_at) / count) : A(0);
    const A slope = static_cast<A>(
        team_sum(team, k,
                 [&](std::int64_t i) { return slope_at(i) * static_cast<double>(A(p[i])); }) /
        count);
    const A r = rstd[row];
    for (std::int64_t i = team.rank(); i < k; i += team.size()) {
      dx[row * k + i] = T(r * (A(d[i]) - mean - A(p[i]) * slope));
    }
  }
};

// Calls call(std::type_identity<T>{}, rows, elements in a row), unless there is nothing to do.
template <class F>
void with_rows(const View& x, F&& call) {
  const std::int64_t k = x.size[x.rank - 1];
  if (x.numel() == 0) return;
  dispatch_float(x.dtype, [&](auto type) { call(type, x.numel() / k, k); });
}

template <class Exec>
void DeviceBackend<Exec>::softmax(View x, bool logarithm, View y) {
  const Exec exec = execution("softmax", {&x, &y});
  with_rows(x, [&]<class T>(std::type_identity<T>, std::int64_t rows, std::int64_t k) {
    exec.for_each_team(rows, k, Softmax<T>{k, logarithm, x.as<T>(), y.as<T>()});
  });
}

template <class Exec>
void DeviceBackend<Exec>::softmax_grad(View y, View dy, bool logarithm, View dx) {
  const Exec exec = execution("softmax_grad", {&y, &dy, &dx});
  with_rows(y, [&]<class T>(std::type_identity<T>, std::int64_t rows, std::int64_t k) {
    exec.for_each_team(rows, k, SoftmaxGrad<T>{k, logarithm, y.as<T>(), dy.as<T>(), dx.as<T>()});
  });
}

template <class Exec>
void DeviceBackend<Exec>::normalize(View x, double eps, bool centered, View y, View rstd) {
  const Exec exec = execution("normalize", {&x, &y, &rstd});
  with_rows(x, [&]<class T>(std::type_identity<T>, std::int64_t rows, std::int64_t k) {
    exec.for_each_team(rows, k,
                       Normalize<T>{k, eps, centered, x.as<T>(), y.as<T>(), rstd.as<acc_t<T>>()});
  });
}

template <class Exec>
void DeviceBackend<Exec>::normalize_grad(View y, View rstd, View dy, bool centered, View dx) {
  const Exec exec = execution("normalize_grad", {&y, &rstd, &dy, &dx});
  with_rows(y, [&]<class T>(std::type_identity<T>, std::int64_t rows, std::int64_t k) {
    exec.for_each_team(
        rows, k,
        NormalizeGrad<T>{k, centered, y.as<T>(), dy.as<T>(), rstd.as<acc_t<T>>(), dx.as<T>()});
  });
}

}  // namespace sotto
