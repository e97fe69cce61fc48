#include "dp/clipping/unit_norms.h"

#include <cmath>
#include <type_traits>

#include "core/threads/simd_dispatch.h"

namespace sotto {

namespace {

// What cancels in a gradient of single precision is at most so many times its error (squared_norm).
constexpr double terms_of_error = 0x1p23;
// Of all terms of a sum together: far from float's end, 2^128, for positions of a table's row.
constexpr double harmless_size = 0x1p100;

// f(kind), the kind being a constant, so that loops over rules of it have no branches.
template <class F>
void with_kind(ClipRule::Kind kind, const F& f) {
  const auto of = [&]<ClipRule::Kind known> { f(std::integral_constant<ClipRule::Kind, known>()); };
  switch (kind) {
    case ClipRule::Kind::minimum: return of.template operator()<ClipRule::Kind::minimum>();
    case ClipRule::Kind::opacus: return of.template operator()<ClipRule::Kind::opacus>();
    case ClipRule::Kind::automatic: return of.template operator()<ClipRule::Kind::automatic>();
    case ClipRule::Kind::normalise: return of.template operator()<ClipRule::Kind::normalise>();
    case ClipRule::Kind::adaptive: return of.template operator()<ClipRule::Kind::adaptive>();
  }
}

}  // namespace

UnitLengths::UnitLengths(std::int64_t units)
    : squares_(static_cast<std::size_t>(units)),
      errors_(squares_.size()),
      shares_(errors_.size()) {}

void UnitLengths::add(const std::vector<PerSample>& uses, Route route, double scale) {
  NormBounds more;
  const std::vector<double> parts = squared_norm(uses, route, &more).to_vector<double>();
  widely([&, units = squares_.size(), squares = squares_.data(), errors = errors_.data(),
          shares = shares_.data()] {
    const double *const part = parts.data(), *const error = more.errors.data(),
                        *const share = more.shares.data();
    const double of_loss = scale;
    for (std::size_t n = 0; n < units; ++n) {
      GradientLength length{squares[n], errors[n], shares[n]};
      length.add(part[n], error[n], share[n], of_loss);
      squares[n] = length.square;
      errors[n] = length.error;
      shares[n] = length.share;
    }
  });
}

// What is taken of each unit, and how many of them are to stay apart or may overflow.
struct UnitLengths::Factors {
  double *norms, *values, *roundings;
  std::int64_t apart = 0, large = 0;
};

template <ClipRule::Kind kind>
void UnitLengths::factors_by(const ClipRule& rule, double bound, double margin, double scale,
                             Factors& y) const {
  // Of this function alone, so that no store can be to one of them.
  const ClipRule known{kind, rule.gamma};
  const std::size_t units = squares_.size();
  const double each = harmless_size / static_cast<double>(units);
  const double *const squares = squares_.data(), *const errors = errors_.data(),
                      *const shares = shares_.data();
  double *const norms = y.norms, *const values = y.values, *const roundings = y.roundings;
  for (std::size_t n = 0; n < units; ++n) {
    const GradientLength of{squares[n], errors[n], 0};
    norms[n] = of.norm();
    roundings[n] = of.rounding();
    values[n] = of.factor(known, bound, margin, scale);
  }
  std::int64_t apart = 0, large = 0;
  for (std::size_t n = 0; n < units; ++n) {
    const double factor = values[n];
    const double terms = factor * (norms[n] + roundings[n] * terms_of_error);
    apart += ((factor != 0) & GradientLength{0, 0, shares[n]}.apart(factor, bound)) ? 1 : 0;
    large += ((factor != 0) & ((factor > scale) | !(terms < each))) ? 1 : 0;
  }
  y.apart = apart;
  y.large = large;
}

UnitFactors UnitLengths::factors(const ClipRule& rule, double bound, double margin,
                                 double scale) const {
  const std::size_t size = squares_.size();
  UnitFactors y{.norms = std::vector<double>(size), .values = std::vector<double>(size)};
  std::vector<double> roundings(size);
  Factors of{y.norms.data(), y.values.data(), roundings.data()};
  with_kind(rule.kind,
            [&](auto kind) { widely([&] { factors_by<kind>(rule, bound, margin, scale, of); }); });
  y.harmless = of.large == 0;
  for (std::size_t n = 0; of.apart > 0 && n < size; ++n) {
    if (y.values[n] != 0 && GradientLength{0, 0, shares_[n]}.apart(y.values[n], bound))
      y.apart.push_back(n);
  }
  return y;
}

UnitCounts count_units(const std::vector<double>& norms, const std::vector<double>& factors,
                       double bound, std::vector<char>& finite) {
  UnitCounts y;
  widely([&, units = norms.size(), norm = norms.data(), factor = factors.data(),
          still = finite.data(), most = bound] {
    std::ptrdiff_t within = 0, lost = 0;
    for (std::size_t n = 0; n < units; ++n) {
      within += norm[n] <= most ? 1 : 0;
      lost += ((factor[n] == 0) & (norm[n] != 0)) ? 1 : 0;
    }
    for (std::size_t n = 0; n < units; ++n) still[n] &= std::isfinite(norm[n]) ? 1 : 0;
    y = {within, lost};
  });
  return y;
}

double finite_sum(const std::vector<double>& values) {
  constexpr std::size_t lanes = 8;
  double total = 0;
  widely([&, size = values.size(), value = values.data()] {
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
