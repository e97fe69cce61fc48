#include "sotto/dp/unit_lengths.h"

#include <cmath>
#include <type_traits>

#include "sotto/core/wide.h"

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

UnitLengths::UnitLengths(std::int64_t units) : of_(static_cast<std::size_t>(units)) {}

void UnitLengths::add(const std::vector<PerSample>& uses, Route route, double scale) {
  NormBounds more;
  const std::vector<double> squares = squared_norm(uses, route, &more).to_vector<double>();
  widely([size = of_.size(), of = of_.data(), scale, parts = squares.data(),
          errors = more.errors.data(), shares = more.shares.data()] {
    for (std::size_t n = 0; n < size; ++n) of[n].add(parts[n], errors[n], shares[n], scale);
  });
}

UnitFactors UnitLengths::factors(const ClipRule& rule, double bound, double margin,
                                 double scale) const {
  const std::size_t size = of_.size();
  UnitFactors y{.norms = std::vector<double>(size), .values = std::vector<double>(size)};
  std::int64_t apart = 0, large = 0;  // how many
  with_kind(rule.kind, [&](auto kind) {
    widely([&, of = of_.data(), norms = y.norms.data(), values = y.values.data()] {
      // Of this function alone, so that no store can be to one of them.
      const ClipRule known{kind, rule.gamma};
      const double most = bound, slack = margin, scaled = scale,
                   each = harmless_size / static_cast<double>(size);
      const std::size_t units = size;
      for (std::size_t n = 0; n < units; ++n) {
        norms[n] = of[n].norm();
        values[n] = of[n].factor(known, most, slack, scaled);
      }
      std::int64_t far = 0, beyond = 0;
      for (std::size_t n = 0; n < units; ++n) {
        const double factor = values[n];
        const double terms = factor * (norms[n] + std::sqrt(of[n].error) * terms_of_error);
        far += ((factor != 0) & of[n].apart(factor, most)) ? 1 : 0;
        beyond += ((factor != 0) & ((factor > scaled) | !(terms < each))) ? 1 : 0;
      }
      apart = far;
      large = beyond;
    });
  });
  y.harmless = large == 0;
  for (std::size_t n = 0; apart > 0 && n < size; ++n) {
    if (y.values[n] != 0 && of_[n].apart(y.values[n], bound)) y.apart.push_back(n);
  }
  return y;
}

}  // namespace sotto
