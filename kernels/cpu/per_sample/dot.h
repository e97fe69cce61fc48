// Inner products, computed in double, of arrays of any float type.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/dtype.h"

namespace sotto {

// The number of independent running sums, which lets additions overlap.
inline constexpr std::int64_t sum_lanes = 8;

inline double sum_of(const double (&sums)[sum_lanes]) {
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// sum_i term(i) for i in [0, count). Term i goes to running sum i mod 16, whatever the count, so
// zeros at the end, as from padding, change no bit.
template <class F>
double sum_terms(std::int64_t count, const F& term) {
  double sums[sum_lanes] = {}, others[sum_lanes] = {};
  std::int64_t i = 0;
  for (; i + 2 * sum_lanes <= count; i += 2 * sum_lanes) {
    for (std::int64_t lane = 0; lane < sum_lanes; ++lane) sums[lane] += term(i + lane);
    for (std::int64_t lane = 0; lane < sum_lanes; ++lane)
      others[lane] += term(i + sum_lanes + lane);
  }
  // The remaining terms go directly to the running sums: in a separate sum, a product would be
  // rounded before it is added, whereas here it can be fused with the addition.
  for (std::int64_t lane = 0; lane < sum_lanes && i < count; ++lane) sums[lane] += term(i++);
  for (std::int64_t lane = 0; lane < sum_lanes && i < count; ++lane) others[lane] += term(i++);
  for (std::int64_t lane = 0; lane < sum_lanes; ++lane) sums[lane] += others[lane];
  return sum_of(sums);
}

// True if squares summed in float are accurate given their sum: squares below float's range are
// negligible, and none overflowed.
inline constexpr double min_held = 1e-24, max_held = std::numeric_limits<double>::max();
inline bool squares_hold(double total) { return total >= min_held && total <= max_held; }

// sum_i a[i]^2. For f32 and 16-bit types, four squares at a time are added in float, a relative
// error of at most 2^-22 unless a square leaves float's range.
template <class T>
double squared_norm(const T* a, std::int64_t count) {
  const auto value = [a](std::int64_t i) { return acc_t<T>(a[i]); };
  const auto square = [&](std::int64_t i) { return double{value(i)} * double{value(i)}; };
  if constexpr (std::is_same_v<acc_t<T>, float>) {
    // The four squares that are added in float are `lanes` elements apart, so that the loop
    // vectorizes.
    constexpr std::int64_t lanes = sum_lanes, block = 4 * lanes;
    if (count < block) return sum_terms(count, square);
    double sums[lanes] = {};
    std::int64_t i = 0;
    for (; i + block <= count; i += block) {
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        const std::int64_t j = i + lane;
        const float x = value(j), y = value(j + lanes), z = value(j + 2 * lanes),
                    w = value(j + 3 * lanes);
        sums[lane] += double{(x * x + y * y) + (z * z + w * w)};
      }
    }
    for (; i + lanes <= count; i += lanes) {
      for (std::int64_t lane = 0; lane < lanes; ++lane) sums[lane] += square(i + lane);
    }
    double rest = 0;
    for (; i < count; ++i) rest += square(i);
    const double total = sum_of(sums) + rest;
    if (squares_hold(total)) return total;
  }
  return sum_terms(count, square);
}

// sum_i a[i] b[i]. If a == b, it needs half the conversions to double.
template <class T>
double dot(const T* a, const T* b, std::int64_t count) {
  if (a == b) return squared_norm(a, count);
  return sum_terms(count, [a, b](std::int64_t i) {
    return static_cast<double>(acc_t<T>(a[i])) * static_cast<double>(acc_t<T>(b[i]));
  });
}

}  // namespace sotto
