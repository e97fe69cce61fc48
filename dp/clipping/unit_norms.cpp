#include "dp/clipping/unit_norms.h"

#include <cmath>
#include <type_traits>

#include "core/threads/simd_dispatch.h"
#include "kernels/host_device/clip_sample.h"

namespace sotto {

namespace {

// In single precision the norms of the terms that cancel in a gradient add up to at most this
// multiple of its error bound (squared_norm).
constexpr double terms_of_error = 0x1p22;
// A sum whose terms' norms add up to less than this cannot overflow, and neither can a gradient
// before it is weighted. The distance from 2^128, the end of f32, leaves room for a table's row
// that occurs at many positions.
constexpr double max_total_size = 0x1p100;

// Calls f(kind) with the kind as a constant, so that loops over units have no branches for it.
template <class F>
void with_kind(ClipRule::Kind kind, const F& f) {
  const auto call = [&]<ClipRule::Kind known> {
    f(std::integral_constant<ClipRule::Kind, known>());
  };
  switch (kind) {
    case ClipRule::Kind::minimum: return call.template operator()<ClipRule::Kind::minimum>();
    case ClipRule::Kind::opacus: return call.template operator()<ClipRule::Kind::opacus>();
    case ClipRule::Kind::auto_s: return call.template operator()<ClipRule::Kind::auto_s>();
    case ClipRule::Kind::normalize: return call.template operator()<ClipRule::Kind::normalize>();
    case ClipRule::Kind::psac: return call.template operator()<ClipRule::Kind::psac>();
  }
}

// The squared norms of the units (GradientNorm), and the results for each of them: the last two
// count the units that are summed separately and those that may overflow.
struct Columns {
  std::size_t units;
  const double *squares, *error_bounds, *term_norms;
  double *norms, *values, *roundings;
  std::int64_t separate = 0, large = 0;
};

// The arguments of UnitNorms::factors().
struct FactorRule {
  ClipRule rule;
  double bound, margin, scale;
};

template <ClipRule::Kind kind>
void factors_by(const FactorRule& by, Columns& y) {
  // Local copies: the compiler knows that stores to the results do not change them.
  const ClipRule known{kind, by.rule.gamma};
  const double bound = by.bound, margin = by.margin, scale = by.scale;
  const std::size_t units = y.units;
  const double each = max_total_size / static_cast<double>(units);
  const double *const squares = y.squares, *const error_bounds = y.error_bounds,
                      *const term_norms = y.term_norms;
  double *const norms = y.norms, *const values = y.values, *const roundings = y.roundings;
  for (std::size_t n = 0; n < units; ++n) {
    const GradientNorm norm{squares[n], error_bounds[n], 0};
    norms[n] = norm.norm();
    roundings[n] = norm.rounding();
    values[n] = norm.factor(known, bound, margin, scale);
  }
  std::int64_t separate = 0, large = 0;
  for (std::size_t n = 0; n < units; ++n) {
    const double factor = values[n];
    const double unweighted = norms[n] + roundings[n] * terms_of_error;
    const double terms = factor * unweighted;
    separate += ((factor != 0) & GradientNorm{0, 0, term_norms[n]}.apart(factor, bound)) ? 1 : 0;
    const bool fits = (terms < each) & (scale * unweighted < max_total_size);
    large += ((factor != 0) & ((factor > scale) | !fits)) ? 1 : 0;
  }
  y.separate = separate;
  y.large = large;
}

}  // namespace

UnitNorms::UnitNorms(std::int64_t units)
    : squares_(static_cast<std::size_t>(units)),
      error_bounds_(squares_.size()),
      term_norms_(error_bounds_.size()) {}

void UnitNorms::add(const std::vector<PerSampleGrad>& uses, NormMethod norm_method, double scale) {
  NormErrorBounds more;
  const std::vector<double> parts = squared_norm(uses, norm_method, &more).to_vector<double>();
  simd_dispatch([&, units = squares_.size(), squares = squares_.data(),
                 error_bounds = error_bounds_.data(), term_norms = term_norms_.data()] {
    const double *const part = parts.data(), *const error = more.error_bounds.data(),
                        *const term_norm = more.term_norms.data();
    const double of_loss = scale;
    for (std::size_t n = 0; n < units; ++n) {
      GradientNorm norm{squares[n], error_bounds[n], term_norms[n]};
      norm.add(part[n], error[n], term_norm[n], of_loss);
      squares[n] = norm.square;
      error_bounds[n] = norm.error;
      term_norms[n] = norm.term_norm;
    }
  });
}

ClipFactors UnitNorms::factors(const ClipRule& rule, double bound, double margin,
                               double scale) const {
  const std::size_t size = squares_.size();
  ClipFactors y{.norms = std::vector<double>(size), .values = std::vector<double>(size)};
  std::vector<double> roundings(size);
  Columns columns{size,           squares_.data(), error_bounds_.data(), term_norms_.data(),
                  y.norms.data(), y.values.data(), roundings.data()};
  const FactorRule by{rule, bound, margin, scale};
  with_kind(rule.kind, [&](auto kind) { simd_dispatch([&] { factors_by<kind>(by, columns); }); });
  y.cannot_overflow = columns.large == 0;
  for (std::size_t n = 0; columns.separate > 0 && n < size; ++n) {
    if (y.values[n] != 0 && GradientNorm{0, 0, term_norms_[n]}.apart(y.values[n], bound))
      y.summed_separately.push_back(n);
  }
  return y;
}

UnitCounts count_units(const std::vector<double>& norms, const std::vector<double>& factors,
                       double bound, std::vector<char>& finite) {
  UnitCounts y;
  simd_dispatch([&, units = norms.size(), norm = norms.data(), factor = factors.data(),
                 finite_so_far = finite.data(), max_norm = bound] {
    std::ptrdiff_t within = 0, lost = 0;
    for (std::size_t n = 0; n < units; ++n) {
      within += norm[n] <= max_norm ? 1 : 0;
      lost += ((factor[n] == 0) & (norm[n] != 0)) ? 1 : 0;
    }
    for (std::size_t n = 0; n < units; ++n) finite_so_far[n] &= std::isfinite(norm[n]) ? 1 : 0;
    y = {within, lost};
  });
  return y;
}

double finite_sum(const std::vector<double>& values) {
  constexpr std::size_t lanes = 8;
  double total = 0;
  simd_dispatch([&, size = values.size(), value = values.data()] {
    const auto counted = [value](std::size_t n) { return std::isfinite(value[n]) ? value[n] : 0; };
    double sums[lanes] = {};
    std::size_t n = 0;
    for (; n + lanes <= size; n += lanes) {
      for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += counted(n + lane);
    }
    for (; n < size; ++n) sums[n % lanes] += counted(n);
    total =
        ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  });
  return total;
}

}  // namespace sotto
