// Softmax, one team of threads per row; sums over a row are computed in double.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/cuda/cuda_map.h"
#include "kernels/cuda/reduce_ops.h"
#include "kernels/cuda/row.h"
#include "kernels/cuda/runtime/device_backend.h"
#include "kernels/functors/scalar_math.h"

namespace sotto {

// sum_i term(i) over the row, returned to all threads.
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
  using A = acc_t<T>;
  Row<T> row;
  bool logarithm;
  const T* x;
  T* y;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const T* const a = x + index * row.count;
    double max = -HUGE_VAL;
    row.each(
        team, 0, row.count, [&](A v) { max = MaxFold::fold(max, static_cast<double>(v)); }, a);
    const A top = static_cast<A>(team.fold(Folding{Reduction::max}, max));
    const double sum = row.sum(
        team, [&](A v) { return math::exp(v - top); }, a);
    // The logarithm is subtracted after the maximum: added to a large maximum first, it would be
    // lost in rounding.
    const A log_sum = static_cast<A>(std::log(sum));
    const A factor = static_cast<A>(1 / sum);
    const auto result = [&](A v) {
      const A shifted = v - top;
      return logarithm ? shifted - log_sum : math::exp(shifted) * factor;
    };
    row.map(team, result, y + index * row.count, a);
  }
};

template <class T>
struct SoftmaxGrad {
  using A = acc_t<T>;
  Row<T> row;
  bool logarithm;
  const T *y, *dy;
  T* dx;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const T *const p = y + index * row.count, *const d = dy + index * row.count;
    const A s = static_cast<A>(row.sum(
        team, [&](A dv, A pv) { return logarithm ? dv : dv * pv; }, d, p));
    const auto slope = [&](A dv, A pv) {
      return logarithm ? dv - math::exp(pv) * s : pv * (dv - s);
    };
    row.map(team, slope, dx + index * row.count, d, p);
  }
};

// The masks of scores [slices, queries, keys] in device code.
struct ScoreMasks {
  View mask[max_score_masks] = {};
  std::size_t count = 0;

  explicit ScoreMasks(const AttentionMask& rule) : count(rule.masks.size()) {
    std::copy(rule.masks.begin(), rule.masks.end(), mask);
  }
  // The score of a key with all masks applied.
  template <class A>
  HD A put(std::int64_t slice, std::int64_t query, std::int64_t key, A score) const {
    for (std::size_t m = 0; m < max_score_masks; ++m) {
      if (m < count) score = put_one(mask[m], slice, query, key, score);
    }
    return score;
  }

 private:
  template <class A>
  HD static A put_one(const View& m, std::int64_t slice, std::int64_t query, std::int64_t key,
                      A score) {
    const std::int64_t at = slice * m.stride[0] + query * m.stride[1] + key * m.stride[2];
    if (m.dtype != Dtype::i64) return score + m.as<const A>()[at];
    return m.as<const std::int64_t>()[at] != 0 ? static_cast<A>(-HUGE_VAL) : score;
  }
};

template <class T>
struct ScoreWeights {
  using A = acc_t<T>;
  Row<T> row;
  AttentionMask rule;
  ScoreMasks masks;
  std::int64_t queries;
  const A* x;
  T* y;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const A* const a = x + index * row.count;
    const std::int64_t slice = index / queries, query = index % queries;
    const std::int64_t in_time = rule.in_time(query, row.count);
    const A scale = static_cast<A>(rule.scale), hidden = static_cast<A>(-HUGE_VAL);
    const auto score = [&](std::int64_t s, A v) {
      return s >= in_time ? hidden : masks.put(slice, query, s, v * scale);
    };
    const std::int64_t end = row.whole(in_time);
    double max = -HUGE_VAL;
    const auto higher = [&](std::int64_t s, A v) {
      max = MaxFold::fold(max, static_cast<double>(score(s, v)));
    };
    row.each_at(team, 0, end, higher, a);
    const A top = static_cast<A>(team.fold(Folding{Reduction::max}, max));
    double sum = 0;
    const auto add = [&](std::int64_t s, A v) {
      sum += static_cast<double>(math::exp(score(s, v) - top));
    };
    row.each_at(team, 0, end, add, a);
    sum = team.fold(Folding{Reduction::sum}, sum);
    const bool sees = !rule.may_hide() || top != hidden;
    const A factor = static_cast<A>(rule.total / sum);
    const auto weight = [&](std::int64_t s, A v) {
      return sees ? math::exp(score(s, v) - top) * factor : A(0);
    };
    row.map_at(team, weight, y + index * row.count, a);
  }
};

// dx = scale w (dw - sum_s w dw / total)
template <class T>
struct ScoreGrad {
  using A = acc_t<T>;
  Row<T> row;
  double scale, total;
  const T* w;
  const A* dw;
  T* dx;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const T* const p = w + index * row.count;
    const A* const d = dw + index * row.count;
    const double sum = row.sum(
        team, [](A dv, A pv) { return dv * pv; }, d, p);
    const A mean = static_cast<A>(sum / sum_of(team, p)), factor = static_cast<A>(scale);
    row.map(
        team, [&](A dv, A pv) { return factor * (pv * (dv - mean)); }, dx + index * row.count, d,
        p);
  }

 private:
  // The sum of the weights: `total`, or for weights rounded to 16 bits their actual sum.
  template <class Team>
  HD double sum_of(const Team& team, const T* p) const {
    if constexpr (std::is_same_v<T, A>) {
      return total;
    } else {
      const double sum = row.sum(
          team, [](A pv) { return pv; }, p);
      return sum == 0 ? total : sum;
    }
  }
};

// Calls call(std::type_identity<T>{}, rows, elements in a row), unless x is empty.
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
    const Row<T> row(k, x.as<T>(), y.as<T>());
    exec.for_each_team(rows, k, Softmax<T>{row, logarithm, x.as<T>(), y.as<T>()});
  });
}

template <class Exec>
void DeviceBackend<Exec>::softmax_grad(View y, View dy, bool logarithm, View dx) {
  const Exec exec = execution("softmax_grad", {&y, &dy, &dx});
  with_rows(y, [&]<class T>(std::type_identity<T>, std::int64_t rows, std::int64_t k) {
    const Row<T> row(k, y.as<T>(), dy.as<T>(), dx.as<T>());
    exec.for_each_team(rows, k, SoftmaxGrad<T>{row, logarithm, y.as<T>(), dy.as<T>(), dx.as<T>()});
  });
}

template <class Exec>
void DeviceBackend<Exec>::masked_softmax(const AttentionMask& rule, View x, View y) {
  const ScoreMasks masks(rule);
  const View* const m = masks.mask;
  static_assert(max_score_masks == 4);
  const Exec exec = execution("score_weights", {m, m + 1, m + 2, m + 3, &x, &y});
  with_rows(y, [&]<class T>(std::type_identity<T>, std::int64_t rows, std::int64_t keys) {
    using A = acc_t<T>;
    const Row<T> row(keys, x.as<A>(), y.as<T>());
    exec.for_each_team(rows, keys,
                       ScoreWeights<T>{row, rule, masks, x.size[1], x.as<A>(), y.as<T>()});
  });
}

template <class Exec>
void DeviceBackend<Exec>::score_weights_grad(const AttentionMask& rule, View w, View dw, View dx) {
  const Exec exec = execution("score_weights_grad", {&w, &dw, &dx});
  with_rows(w, [&]<class T>(std::type_identity<T>, std::int64_t rows, std::int64_t keys) {
    using A = acc_t<T>;
    const Row<T> row(keys, w.as<T>(), dw.as<A>(), dx.as<T>());
    exec.for_each_team(
        rows, keys, ScoreGrad<T>{row, rule.scale, rule.total, w.as<T>(), dw.as<A>(), dx.as<T>()});
  });
}

}  // namespace sotto
