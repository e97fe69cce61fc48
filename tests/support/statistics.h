// Statistics of samplers, with bounds that a correct one exceeds with a stated probability.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

namespace sotto {

// Six standard deviations, plus one count because the distribution is not normal: exceeded on each
// side with probability below 1e-8 in the middle of a binomial distribution, and below 1e-6 if at
// least 10 are expected.
inline bool near(double count, double trials, double probability) {
  const double stddev = std::sqrt(trials * probability * (1 - probability));
  return std::abs(count - trials * probability) < 6 * stddev + 1;
}

// Pearson's chi-square test, with the threshold d + 2 sqrt(d t) + 2 t. A chi-square variable of d
// degrees of freedom exceeds it with probability below e^-t (Laurent and Massart 2000, lemma 1),
// here 1e-6. Cells with less than 10 expected are merged into one.
inline bool fits(std::span<const std::int64_t> counts, std::span<const double> expected) {
  constexpr double min = 10, t = 14;
  double chi_square = 0, degrees = -1, few = 0, few_expected = 0;
  const auto add = [&](double count, double mean) {
    chi_square += (count - mean) * (count - mean) / mean;
    ++degrees;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (expected[i] >= min) {
      add(static_cast<double>(counts[i]), expected[i]);
    } else {
      few += static_cast<double>(counts[i]);
      few_expected += expected[i];
    }
  }
  if (few_expected > 0) add(few, std::max(few_expected, 1.0));
  return chi_square < degrees + 2 * std::sqrt(degrees * t) + 2 * t;
}

}  // namespace sotto
