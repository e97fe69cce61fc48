// Sums of positive numbers given by their logarithms: moments of privacy losses overflow a double
// long before their logarithms do.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace sotto {

// ln(e^x - 1), ln(1 + e^x)
inline double log_expm1(double x) {
  return x > 1 ? x + std::log1p(-std::exp(-x)) : std::log(std::expm1(x));
}
inline double log1p_exp(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

// Sums e^x for given x without overflow.
class LogSum {
 public:
  explicit LogSum(double largest = nothing) : largest_(largest) {}
  void add(double x) {
    if (x > largest_) {
      sum_ *= std::exp(largest_ - x);
      largest_ = x;
    }
    if (x > nothing) sum_ += std::exp(x - largest_);
  }
  double largest() const { return largest_; }
  double log() const { return sum_ > 0 ? largest_ + std::log(sum_) : nothing; }

 private:
  static constexpr double nothing = -std::numeric_limits<double>::infinity();

  double largest_;
  double sum_ = 0;
};

}  // namespace sotto
