// Normalisation with scale and shift: the arguments of its primitives, and its formulas.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/view.h"

namespace sotto {

// How a group's statistics are made.
struct NormRule {
  double eps = 0;        // added to the variance
  bool centered = true;  // false: without subtracting the mean
};

// y = (x - mean) rstd weight + bias, with rstd = 1 / sqrt(variance + eps). Arrays are [n, t,
// groups, channels, places]: n samples of t blocks; mean and variance are over the channels and
// places of a group of a block.
struct Normalization {
  NormRule rule;
  // [groups channels], row-major, of the accumulation type; no data: 1, and 0.
  View weight = {}, bias = {};
};

// The gradients of x, and of weight and bias for each sample: [n, groups channels], row-major, of
// the accumulation type. Undefined ones are not computed.
struct NormalizationGrads {
  View dx, dweight, dbias;
};

// The statistics of a group of a block.
struct NormStats {
  double mean, rstd;

  // The deviation in units of its standard one.
  HD double normalized(double x) const { return (x - mean) * rstd; }
};

// Sums of x - shift and of its square, from which statistics follow without cancellation, since the
// shift is an element: its distance from the mean is at most sqrt(count variance).
struct NormSums {
  double shift, sum, squares;

  HD NormStats stats(const NormRule& rule, double count) const {
    const double mean = rule.centered ? sum / count : 0, variance = squares / count - mean * mean;
    // Rounding may leave less than zero.
    return {shift + mean, 1 / std::sqrt((variance < 0 ? 0 : variance) + rule.eps)};
  }
};

// dx = rstd (d - mean(d) - z mean(d z)) with d = dy weight and the normalised z, the first mean
// left out if not centered.
template <class A>
struct NormSlope {
  A mean = 0, product = 0;

  NormSlope() = default;
  HD NormSlope(const NormRule& rule, double sum, double products, double count)
      : mean(static_cast<A>(rule.centered ? sum / count : 0)),
        product(static_cast<A>(products / count)) {}
  // dx / rstd
  HD A off(A d, A z) const { return d - mean - z * product; }
};

// Calls f(std::type_identity<X>{}, std::type_identity<Y>{}) with the types of x and y: one type, or
// f32 and one of 16 bits.
template <class F>
void dispatch_norm(Dtype x, Dtype y, F&& f) {
  dispatch_float(x, [&]<class X>(std::type_identity<X> of_x) {
    if (x == y) return f(of_x, of_x);
    if constexpr (std::is_same_v<X, float>) {
      if (y == Dtype::bf16) return f(of_x, std::type_identity<bf16>{});
      if (y == Dtype::f16) return f(of_x, std::type_identity<f16>{});
    }
    bad_dtype(y, name(x));
  });
}

// How elements of a block lie in memory: channels side by side at each place, or places side by
// side in each channel.
inline bool channels_last(const View& x) { return x.size[4] == 1 || x.stride[4] != 1; }

}  // namespace sotto
