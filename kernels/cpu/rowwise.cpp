// Softmax and cross entropy by rows; sums over a row are computed in double.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/map.h"
#include "kernels/cpu/per_sample/dot.h"
#include "kernels/functors/scalar_math.h"
#include "kernels/host_device/class_targets.h"

namespace sotto {

namespace {

// Calls f(row, k, its pointers...) for every row of arrays of x's sizes, whose rows lie `pitch`
// elements apart.
template <class F, class... T>
void for_rows_apart(const View& x, std::int64_t pitch, F&& f, T*... arrays) {
  const std::int64_t k = x.size[x.rank - 1];
  const std::int64_t rows = k == 0 ? 0 : x.numel() / k;
  parallel_for(rows, elementwise_grain / std::max<std::int64_t>(k, 1) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 simd_dispatch_avx512([&] {
                   for (std::int64_t r = begin; r < end; ++r) f(r, k, (arrays + r * pitch)...);
                 });
               });
}
// For row-major arrays.
template <class F, class... T>
void for_rows_of(const View& x, F&& f, T*... arrays) {
  for_rows_apart(x, x.size[x.rank - 1], f, arrays...);
}
// Calls f for every row of views of one type.
template <class F, class... V>
void for_each_row(F&& f, View first, V... rest) {
  dispatch_float(first.dtype, [&]<class T>(std::type_identity<T>) {
    for_rows_of(first, f, first.template as<T>(), rest.template as<T>()...);
  });
}
// Calls f for every row of logits, and of their gradients.
template <class F, class... V>
void for_each_row_of_logits(F&& f, View x, V... rest) {
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    for_rows_apart(x, logit_pitch(x), f, x.template as<T>(), rest.template as<T>()...);
  });
}

// The largest element that is not NaN, or -infinity. There are enough lanes that compilers keep the
// loop over them and vectorize it.
template <class T>
acc_t<T> largest(const T* x, std::int64_t k) {
  using A = acc_t<T>;
  constexpr std::int64_t lanes = 32, quarter = lanes / 4;
  const auto larger = [](A top, A v) { return v > top ? v : top; };
  A tops[lanes];
  std::fill_n(tops, lanes, -std::numeric_limits<A>::infinity());
  std::int64_t i = 0;
  for (; i + lanes <= k; i += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane)
      tops[lane] = larger(tops[lane], A(x[i + lane]));
  }
  for (std::int64_t lane = 0; i < k; ++i, ++lane) tops[lane] = larger(tops[lane], A(x[i]));
  for (std::int64_t lane = 0; lane < quarter; ++lane) {
    tops[lane] = larger(larger(tops[lane], tops[lane + quarter]),
                        larger(tops[lane + 2 * quarter], tops[lane + 3 * quarter]));
  }
  for (std::int64_t lane = 1; lane < quarter; ++lane) tops[0] = larger(tops[0], tops[lane]);
  return tops[0];
}

// sum_i e^(x[i] - top). If y is given, its elements become the terms; y may be x.
template <class T>
double exponentials(const T* x, std::int64_t k, acc_t<T> top, T* y) {
  constexpr std::int64_t part = 256;
  acc_t<T> e[part];
  double sum = 0;
  for (std::int64_t at = 0; at < k; at += part) {
    const std::int64_t count = std::min(part, k - at);
    for (std::int64_t i = 0; i < count; ++i) e[i] = math::exp(acc_t<T>(x[at + i]) - top);
    sum += sum_terms(count, [&](std::int64_t i) { return static_cast<double>(e[i]); });
    for (std::int64_t i = 0; y && i < count; ++i) y[at + i] = T(e[i]);
  }
  return sum;
}

// The sum of the weights y: rule.total, or for weights rounded to 16 bits their actual sum.
template <class T>
double total_of(const AttentionMask& rule, const T* y, std::int64_t k) {
  if constexpr (std::is_same_v<T, acc_t<T>>) {
    return rule.total;
  } else {
    const double sum =
        sum_terms(k, [y](std::int64_t i) { return static_cast<double>(acc_t<T>(y[i])); });
    return sum == 0 ? rule.total : sum;
  }
}

// dx = scale y (dy - sum_i y[i] dy[i] / total); dx may be y or dy.
template <class T, class D>
void softmax_grad_row(const AttentionMask& rule, double total, const T* y, const D* dy,
                      std::int64_t k, T* dx) {
  using A = acc_t<T>;
  const double sum =
      sum_terms(k, [&](std::int64_t i) { return static_cast<double>(A(dy[i]) * A(y[i])); });
  const A mean = static_cast<A>(sum / total), scale = static_cast<A>(rule.scale);
  for (std::int64_t i = 0; i < k; ++i) dx[i] = T(scale * (A(y[i]) * (A(dy[i]) - mean)));
}

// Applies row `row` of a slice of a mask to x.
template <class A>
void put_mask(const View& mask, std::int64_t slice, std::int64_t row, std::int64_t keys, A* x) {
  const std::int64_t at = slice * mask.stride[0] + row * mask.stride[1], step = mask.stride[2];
  const auto put = [&](const auto* m, const auto& masked) {
    if (step == 1) {
      for (std::int64_t s = 0; s < keys; ++s) x[s] = masked(x[s], m[s]);
    } else {
      for (std::int64_t s = 0; s < keys; ++s) x[s] = masked(x[s], m[s * step]);
    }
  };
  if (mask.dtype == Dtype::i64) {
    constexpr A hidden = -std::numeric_limits<A>::infinity();
    put(mask.as<std::int64_t>() + at,
        [](A score, std::int64_t hides) { return hides != 0 ? hidden : score; });
  } else {
    put(mask.as<A>() + at, [](A score, A more) { return score + more; });
  }
}

// y = the weights of one query, row `row` of a slice, from its scores x, which are overwritten.
template <class A, class T>
void weigh(const AttentionMask& rule, std::int64_t slice, std::int64_t row, std::int64_t keys, A* x,
           T* y) {
  constexpr A hidden = -std::numeric_limits<A>::infinity();
  const std::int64_t k = rule.in_time(row, keys);
  const A scale = static_cast<A>(rule.scale);
  for (std::int64_t s = 0; s < k; ++s) x[s] *= scale;
  for (const View& mask : rule.masks) put_mask(mask, slice, row, k, x);
  const A top = largest(x, k);
  const bool sees = !rule.may_hide() || top != hidden ||
                    std::any_of(x, x + k, [](A score) { return score != score; });
  const double sum = sees ? exponentials(x, k, top, x) : 0;
  const A factor = static_cast<A>(rule.total / sum);
  for (std::int64_t s = 0; s < k; ++s) y[s] = T(sees ? x[s] * factor : A(0));
  std::fill(y + k, y + keys, T(0));
}

}  // namespace

void CpuBackend::softmax(View x, bool logarithm, View y) {
  for_each_row(
      [logarithm]<class T>(std::int64_t, std::int64_t k, const T* a, T* b) {
        using A = acc_t<T>;
        const A top = largest(a, k);
        const double sum = exponentials(a, k, top, logarithm ? nullptr : b);
        // The logarithm is subtracted after the maximum: added to a large maximum first, it would
        // be lost in rounding.
        const A log_sum = static_cast<A>(std::log(sum));
        const A factor = static_cast<A>(1 / sum);
        for (std::int64_t i = 0; i < k; ++i) {
          b[i] = logarithm ? T(A(a[i]) - top - log_sum) : T(A(b[i]) * factor);
        }
      },
      x, y);
}

void CpuBackend::softmax_grad(View y, View dy, bool logarithm, View dx) {
  for_each_row(
      [logarithm]<class T>(std::int64_t, std::int64_t k, const T* p, const T* d, T* out) {
        using A = acc_t<T>;
        if (!logarithm) return softmax_grad_row({}, 1, p, d, k, out);
        const A s = static_cast<A>(
            sum_terms(k, [&](std::int64_t i) { return static_cast<double>(A(d[i])); }));
        for (std::int64_t i = 0; i < k; ++i) out[i] = T(A(d[i]) - math::exp(A(p[i])) * s);
      },
      y, dy, dx);
}

void CpuBackend::cross_entropy(const ClassTargets& targets, View x, View y, View stats) {
  for_each_row_of_logits(
      [&]<class T>(std::int64_t row, std::int64_t k, const T* a) {
        using A = acc_t<T>;
        CrossEntropyStats<A>& s = stats.as<CrossEntropyStats<A>>()[row] = {};
        A& loss = y.as<A>()[row] = 0;
        if (targets.ignores(row)) return;
        s.max = largest(a, k);
        s.log_sum = static_cast<A>(std::log(exponentials<T>(a, k, s.max, nullptr)));
        const auto spread = [&](std::int64_t c) { return targets.spread<A>(c, k); };
        const auto of = [&](std::int64_t c) { return static_cast<double>(s.loss(A(a[c]))); };
        const double own = targets.own<A>(row, k);
        double sum = own == own && own != 0 ? own * of(targets.id(row)) : own, total = own;
        if (targets.smoothing != 0) {
          // A class of weight 0 may have a logit of minus infinity.
          sum +=
              sum_terms(k, [&](std::int64_t c) { return spread(c) == 0 ? 0 : spread(c) * of(c); });
          total += sum_terms(k, spread);
        }
        s.add_z_loss(targets.z_loss, sum, total);
        loss = static_cast<A>(sum);
        s.total = static_cast<A>(total);
      },
      x);
}

void CpuBackend::cross_entropy_grad(const ClassTargets& targets, View x, View stats, View dy,
                                    View dx) {
  for_each_row_of_logits(
      [&]<class T>(std::int64_t row, std::int64_t k, const T* a, T* out) {
        using A = acc_t<T>;
        if (targets.ignores(row)) return void(std::fill_n(out, k, T(0)));
        const CrossEntropyStats<A> s = stats.as<CrossEntropyStats<A>>()[row];
        const double slope = static_cast<double>(dy.as<A>()[row * dy.stride[0]]),
                     own = targets.own<A>(row, k);
        if (own != own) return void(std::fill_n(out, k, T(A(NAN))));
        const A total = static_cast<A>(slope * static_cast<double>(s.total));
        const auto grad = [&](std::int64_t c, double q) {
          return T(math::exp(-s.loss(A(a[c]))) * total - static_cast<A>(slope * q));
        };
        const auto spread = [&](std::int64_t c) { return targets.spread<A>(c, k); };
        if (targets.smoothing == 0) {
          for (std::int64_t c = 0; c < k; ++c) out[c] = grad(c, 0);
        } else {
          for (std::int64_t c = 0; c < k; ++c) out[c] = grad(c, spread(c));
        }
        const std::int64_t t = targets.id(row);
        out[t] = grad(t, own + spread(t));
      },
      x, dx);
}

void CpuBackend::masked_softmax(const AttentionMask& rule, View x, View y) {
  dispatch_float(y.dtype, [&]<class T>(std::type_identity<T>) {
    const auto one = [&](std::int64_t index, std::int64_t keys, acc_t<T>* scores, T* weights) {
      weigh(rule, index / x.size[1], index % x.size[1], keys, scores, weights);
    };
    for_rows_of(x, one, x.as<acc_t<T>>(), y.as<T>());
  });
}

void CpuBackend::score_weights_grad(const AttentionMask& rule, View w, View dw, View dx) {
  dispatch_float(w.dtype, [&]<class T>(std::type_identity<T>) {
    const auto one = [&](std::int64_t, std::int64_t keys, const T* p, const acc_t<T>* d, T* grads) {
      softmax_grad_row(rule, total_of(rule, p, keys), p, d, keys, grads);
    };
    for_rows_of(w, one, w.as<T>(), dw.as<acc_t<T>>(), dx.as<T>());
  });
}

}  // namespace sotto
