// Sums of products of two Gram matrices: norms of per-sample gradients without the gradients.
#pragma once

#include <cmath>
#include <cstdint>

#include "sotto/kernels/cpu/dot.h"

namespace sotto {

struct GramSum {
  double value = 0;
  double magnitude = 0;  // the sum of the terms' absolute values

  // Adds `times` the terms a[i] b[i].
  template <class T>
  void add(const T* a, const T* b, std::int64_t count, double times = 1) {
    const auto term = [a, b](std::int64_t i) {
      return static_cast<double>(a[i]) * static_cast<double>(b[i]);
    };
    value += times * sum_terms(count, term);
    magnitude += times * sum_terms(count, [&](std::int64_t i) { return std::abs(term(i)); });
  }

  // Whether the value holds enough digits; otherwise it is to be had from the gradient itself.
  // A product's rounding is about 2^-24 sqrt(k) of its terms in float, and below this share of the
  // sum of magnitudes it could show in the fifth digit of the result. Products of finite factors
  // may overflow in float though the gradient does not.
  bool sound() const {
    constexpr double cancellation_share = 0.02;
    const bool finite = magnitude < HUGE_VAL;
    return magnitude == 0 || (finite && std::abs(value) >= cancellation_share * magnitude);
  }
};

}  // namespace sotto
