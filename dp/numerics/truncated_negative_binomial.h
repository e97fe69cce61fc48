// The number of runs among which a private selection chooses the best.
#pragma once

#include <cstdint>

namespace sotto {
class SecretRandom;
}  // namespace sotto

namespace sotto {

// The negative binomial distribution of shape eta, without 0 (Papernot and Steinke 2022, definition
// 1): for k = 1, 2, ...
//
//   P[K = k] = (1 - gamma)^k / (gamma^-eta - 1) prod_{l < k} (l + eta) / (l + 1),
//
// and for eta = 0 its limit (1 - gamma)^k / (k ln(1 / gamma)), the logarithmic distribution. eta =
// 1 is the geometric distribution.
struct TruncatedNegativeBinomial {
  double eta = 1;      // > -1: the smaller, the more spread out
  double gamma = 0.1;  // in (0, 1)

  // The distribution of this shape with this mean. Throws std::invalid_argument unless mean is in
  // [1.001, 1000] and eta in (-1, 100], and when gamma would underflow.
  static TruncatedNegativeBinomial with_mean(double mean, double eta = 1);
  // Throws std::invalid_argument, with `op` first, unless eta is in (-1, 100], gamma in (0, 1), and
  // the mean at most 1001.
  void check_range(const char* op) const;
  // Throws also unless gamma >= 1e-4: numbers are drawn up to about 40 / gamma, each in a time of
  // 40 / gamma operations, and with a smaller gamma neither would end.
  void check_draws(const char* op) const;
  // eta (1 - gamma) / (gamma (1 - gamma^eta)), or (1 / gamma - 1) / ln(1 / gamma) for eta = 0.
  double mean() const;
  // P[K = k] for k >= 1.
  double probability(std::int64_t k) const;
  // Draws a number, where check_draws() lets it: stops at k with probability P[K = k] / P[K >= k],
  // in units of 2^-53. The probability of each k is off by a factor of at most 1 +- 2^-30 k.
  std::int64_t draw(SecretRandom& random) const;

  bool operator==(const TruncatedNegativeBinomial&) const = default;
};

}  // namespace sotto
