// Sums of products of two Gram matrices, as in ghost norms.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/per_sample/dot.h"
#include "kernels/host_device/gram_precision.h"

namespace sotto {

struct GramSum {
  double value = 0;
  double magnitude = 0;  // sum of the terms' absolute values

  // Adds `times` times the sum of the terms a[i] b[i].
  template <class T>
  void add(const T* a, const T* b, std::int64_t count, double times = 1) {
    const auto term = [a, b](std::int64_t i) {
      return static_cast<double>(a[i]) * static_cast<double>(b[i]);
    };
    value += times * sum_terms(count, term);
    magnitude += times * sum_terms(count, [&](std::int64_t i) { return std::abs(term(i)); });
  }

  bool accurate() const { return gram_is_accurate(value, magnitude); }
};

}  // namespace sotto
