// Inner products in double of arrays of any float type.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "sotto/core/dtype.h"

namespace sotto {

// The sum of a power of two of numbers, half of them at once.
template <std::size_t N>
double total_of(double (&sums)[N]) {
  static_assert(std::has_single_bit(N));
  for (std::size_t half = N / 2; half > 0; half /= 2) {
    for (std::size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  }
  return sums[0];
}

// sum_i term(i) for i in [0, count), in many running sums: additions need not wait for each other.
template <class F>
double sum_terms(std::int64_t count, F&& term) {
  constexpr std::int64_t lanes = 16;
  double sums[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) sums[lane] += term(i + lane);
  }
  if (i == count) return total_of(sums);
  double rest[lanes] = {};
  for (std::int64_t lane = 0; lane < count - i; ++lane) rest[lane] = term(i + lane);
  for (std::int64_t lane = 0; lane < lanes; ++lane) sums[lane] += rest[lane];
  return total_of(sums);
}

// sum_i a[i]^2. Of single precision and narrower, four squares at a time are added in float, which
// costs at most a relative 2^-22 where no square leaves float's range.
template <class T>
double squared_norm(const T* a, std::int64_t count) {
  const auto value = [a](std::int64_t i) { return acc_t<T>(a[i]); };
  const auto square = [&](std::int64_t i) { return double{value(i)} * double{value(i)}; };
  if constexpr (std::is_same_v<acc_t<T>, float>) {
    // Lanes of the same square in each four lie 16 apart, for the sake of vector instructions.
    constexpr std::int64_t lanes = 16, block = 4 * lanes;
    double sums[lanes] = {};
    const std::int64_t whole = count / block * block;
    for (std::int64_t i = 0; i < whole; i += block) {
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        const std::int64_t j = i + lane;
        const float x = value(j), y = value(j + lanes), z = value(j + 2 * lanes),
                    w = value(j + 3 * lanes);
        sums[lane] += double{(x * x + y * y) + (z * z + w * w)};
      }
    }
    double total = sum_terms(count - whole, [&](std::int64_t i) { return square(whole + i); });
    if (whole > 0) total += total_of(sums);
    // What squares below float's range lose is nothing beside this.
    constexpr double least = 1e-24;
    if (total >= least && total <= std::numeric_limits<double>::max()) return total;
  }
  return sum_terms(count, square);
}

// sum_i a[i] b[i]. Of an array with itself it takes half the conversions to double.
template <class T>
double dot(const T* a, const T* b, std::int64_t count) {
  if (a == b) return squared_norm(a, count);
  return sum_terms(count, [a, b](std::int64_t i) {
    return static_cast<double>(acc_t<T>(a[i])) * static_cast<double>(acc_t<T>(b[i]));
  });
}

}  // namespace sotto
