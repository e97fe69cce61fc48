#include "tests/conformance/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::conformance {

namespace {

constexpr double beyond = std::numeric_limits<double>::infinity();

// The relative error of a double computed with a single-precision constant: a few times 2^-24.
constexpr double single_precision = 0x1p-22;

struct Worst {
  double severity = 0;  // error / tolerance
  std::size_t at = 0;
  double relative = 0;  // the largest relative error of an element outside its tolerance
};

// NaN in `expected` means "not defined here"; in `got` it is wrong.
Worst worst_of(const std::vector<double>& got, const std::vector<double>& expected,
               const Tolerance& tolerance) {
  Worst worst;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]) || got[i] == expected[i]) continue;
    const double error = std::abs(got[i] - expected[i]);
    const double allowed = tolerance.absolute + tolerance.relative * std::abs(expected[i]);
    const double severity = std::isfinite(error) ? error / allowed : beyond;
    if (severity > 1) worst.relative = std::max(worst.relative, error / std::abs(expected[i]));
    if (severity > worst.severity) {
      worst.severity = severity;
      worst.at = i;
    }
  }
  return worst;
}

// The case's tolerance; for fewer bits, which it does not cover, a multiple of the largest value's
// rounding.
Tolerance tolerance_for(const Described& described, const std::vector<double>& expected,
                        Dtype dtype, bool tf32) {
  constexpr double units = 16, of_11_bits = 0x1p-11, of_8_bits = 0x1p-8;
  if (dtype == Dtype::f64) return described.f64;
  if (dtype == Dtype::f32 && !tf32) return described.f32;
  const double relative = units * (dtype == Dtype::bf16 ? of_8_bits : of_11_bits);
  double largest = 0;
  for (const double value : expected) largest = std::fmax(largest, std::abs(value));
  return {std::max(described.f32.absolute, relative * largest),
          std::max(described.f32.relative, relative)};
}

}  // namespace

void Comparison::expect(const std::string& name, const Tensor& got, const std::string& how) {
  if (!expects(name)) return;
  compared_.insert("expect." + name);
  const Described& described = case_.tensor("expect." + name);
  const std::string label = how.empty() ? name : fmt::format("{} ({})", name, how);
  if (got.shape() != described.value.shape()) {
    return fail(
        fmt::format("{}: shape {}, expected {}", label, got.shape(), described.value.shape()));
  }
  const auto values = to_dtype(got, Dtype::f64).to_vector<double>();
  const auto expected = described.value.to_vector<double>();
  Tolerance tolerance = tolerance_for(described, expected, dtype_, tf32_);
  double largest = 0;
  for (const double value : expected) largest = std::fmax(largest, std::abs(value));
  tolerance.absolute = std::max(
      {tolerance.absolute, least_.absolute, std::max(fraction_, least_.relative) * largest});
  const Worst worst = worst_of(values, expected, tolerance);
  if (worst.severity <= 1) return;
  const double wanted = expected[worst.at];
  deviations_.push_back({fmt::format("{}: error {:.3g} where {:.3g} is allowed: got {:.9g}, "
                                     "expected {:.9g}, element {} of {}",
                                     label, std::abs(values[worst.at] - wanted),
                                     tolerance.absolute + tolerance.relative * std::abs(wanted),
                                     values[worst.at], wanted, worst.at, got.shape()),
                         worst.severity,
                         dtype_ == Dtype::f64 && worst.relative <= single_precision});
}

void Comparison::fail(const std::string& text) { deviations_.push_back({text, beyond}); }

void Comparison::finish() {
  if (refused_) return;
  for (const std::string& name : case_.names_after("expect.")) {
    if (!compared_.count("expect." + name)) fail(name + ": expected and not computed");
  }
}

}  // namespace sotto::conformance
