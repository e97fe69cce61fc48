// Cross entropy, one team of threads for each row of logits, which are read once in each direction,
// and twice forwards with label smoothing.
#pragma once

#include <cmath>

#include "kernels/cuda/row.h"
#include "kernels/cuda/runtime/device_backend.h"
#include "kernels/functors/scalar_math.h"
#include "kernels/host_device/class_targets.h"

namespace sotto {

// Rows of `classes` elements that lie `pitch` elements apart in all arrays.
template <class T, class... X>
Row<T> rows_apart(std::int64_t classes, std::int64_t pitch, const X*... arrays) {
  Row<T> row(classes, arrays...);
  row.packed = row.packed && pitch % row.lanes == 0;
  return row;
}

template <class T>
struct CrossEntropy {
  using A = acc_t<T>;
  Row<T> row;
  std::int64_t pitch;
  ClassTargets targets;
  const T* x;
  A* y;
  CrossEntropyStats<A>* stats;

  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const T* const a = x + index * pitch;
    CrossEntropyStats<A> s{};
    double loss = 0;
    if (!targets.ignores(index)) {
      find_sum(team, a, s);
      const double own = targets.template own<A>(index, row.count);
      const bool counts = own == own && own != 0;
      loss = counts ? own * static_cast<double>(s.loss(A(a[targets.id(index)]))) : own;
      double total = own;
      if (targets.smoothing != 0) add_spread(team, a, s, loss, total);
      s.add_z_loss(targets.z_loss, loss, total);
      s.total = static_cast<A>(total);
    }
    if (team.rank() != 0) return;
    y[index] = static_cast<A>(loss);
    stats[index] = s;
  }

 private:
  // Each thread's sum is of exponentials below its own maximum, and is scaled to the row's.
  template <class Team>
  HD void find_sum(const Team& team, const T* a, CrossEntropyStats<A>& s) const {
    A max = static_cast<A>(-HUGE_VAL);
    double sum = 0;
    row.each(
        team, 0, row.count,
        [&](A v) {
          if (v > max) {
            sum = sum * static_cast<double>(math::exp(max - v)) + 1;
            max = v;
          } else if (v != static_cast<A>(-HUGE_VAL)) {
            sum += static_cast<double>(math::exp(v - max));
          }
        },
        a);
    s.max = static_cast<A>(team.fold(Folding{Reduction::max}, static_cast<double>(max)));
    sum *= static_cast<double>(math::exp(max - s.max));
    s.log_sum = static_cast<A>(std::log(team.fold(Folding{Reduction::sum}, sum)));
  }
  // A class of weight 0 may have a logit of minus infinity.
  template <class Team>
  HD void add_spread(const Team& team, const T* a, const CrossEntropyStats<A>& s, double& loss,
                     double& total) const {
    double losses = 0, weights = 0;
    row.each_at(
        team, 0, row.count,
        [&](std::int64_t c, A v) {
          const double w = targets.template spread<A>(c, row.count);
          if (w != 0) losses += w * static_cast<double>(s.loss(v));
          weights += w;
        },
        a);
    loss += team.fold(Folding{Reduction::sum}, losses);
    total += team.fold(Folding{Reduction::sum}, weights);
  }
};

template <class T>
struct CrossEntropyGrad {
  using A = acc_t<T>;
  Row<T> row;
  std::int64_t pitch;
  ClassTargets targets;
  const T* x;
  const CrossEntropyStats<A>* stats;
  const A* dy;
  std::int64_t dy_stride;
  T* dx;

  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const CrossEntropyStats<A> s = stats[index];
    const bool ignored = targets.ignores(index);
    const std::int64_t t = targets.id(index);
    const double slope = static_cast<double>(dy[index * dy_stride]),
                 own = targets.template own<A>(index, row.count);
    // An id that is no class makes the whole row NaN.
    const A total = static_cast<A>(slope * static_cast<double>(s.total)) * (own == own ? 1 : NAN);
    const auto grad = [&](std::int64_t c, A v) {
      if (ignored) return A(0);
      const double q = targets.template spread<A>(c, row.count) + (c == t ? own : 0);
      return math::exp(-s.loss(v)) * total - static_cast<A>(slope * q);
    };
    row.map_at(team, grad, dx + index * pitch, x + index * pitch);
  }
};

template <class Exec>
void DeviceBackend<Exec>::cross_entropy(const ClassTargets& targets, View x, View y, View stats) {
  const Exec exec = execution("cross_entropy", {&x, &targets.ids, &targets.weights, &y, &stats});
  if (x.numel() == 0) return;
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    using A = acc_t<T>;
    const std::int64_t classes = x.size[1], pitch = logit_pitch(x);
    exec.for_each_team(x.size[0], classes,
                       CrossEntropy<T>{rows_apart<T>(classes, pitch, x.as<T>()), pitch, targets,
                                       x.as<T>(), y.as<A>(), stats.as<CrossEntropyStats<A>>()});
  });
}

template <class Exec>
void DeviceBackend<Exec>::cross_entropy_grad(const ClassTargets& targets, View x, View stats,
                                             View dy, View dx) {
  const Exec exec =
      execution("cross_entropy_grad", {&x, &targets.ids, &targets.weights, &stats, &dy, &dx});
  if (x.numel() == 0) return;
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    using A = acc_t<T>;
    const std::int64_t classes = x.size[1], pitch = logit_pitch(x);
    const Row<T> row = rows_apart<T>(classes, pitch, x.as<T>(), dx.as<T>());
    exec.for_each_team(
        x.size[0], classes,
        CrossEntropyGrad<T>{row, pitch, targets, x.as<T>(), stats.as<CrossEntropyStats<A>>(),
                            dy.as<A>(), dy.stride[0], dx.as<T>()});
  });
}

}  // namespace sotto
