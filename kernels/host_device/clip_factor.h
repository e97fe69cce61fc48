// From the norm of a gradient to the factor that bounds it: the arithmetic of clipping, for all
// devices. Device code can include this header.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/half.h"
#include "core/view.h"

namespace sotto {

// How a norm n becomes a factor, for a bound C. Whatever the rule, factor * n <= C.
struct ClipRule {
  enum class Kind {
    minimum,    // min(1, C / n)                      (Abadi et al. 2016)
    opacus,     // min(1, C / (n + 1e-6))             (for comparison with that library)
    automatic,  // C / (n + gamma)                    (Bu et al. 2023, AUTO-S)
    normalize,  // C / n; 0 for n = 0
    adaptive,   // C / (n + gamma / (n + gamma)), each sample its own  (Xia et al. 2023, PSAC)
  };
  Kind kind = Kind::minimum;
  double gamma = 0.01;  // automatic, adaptive
  // Below it a factor is 0: what it is multiplied by has to stay within single precision.
  static constexpr double smallest = 0x1p-100;

  // 0 for a norm or error that is not finite, or so large that the factor would be too small.
  // `margin` is a relative slack for rounding and `error` what rounding may add to the norm
  // besides: factor * (n + error) <= C (1 - margin).
  HD double factor(double norm, double bound, double margin, double error = 0) const {
    constexpr double opacus_eps = 1e-6, infinite = std::numeric_limits<double>::infinity();
    double wanted = 1;
    switch (kind) {
      case Kind::minimum: break;
      case Kind::opacus: wanted = std::min(1.0, bound / (norm + opacus_eps)); break;
      case Kind::automatic: wanted = bound / (norm + gamma); break;
      case Kind::normalize: wanted = norm > 0 ? bound / norm : 0; break;
      case Kind::adaptive: wanted = bound / (norm + gamma / (norm + gamma)); break;
    }
    const double most = bound * (1 - margin) / (norm + error);  // infinite for 0
    const double factor = std::min(wanted, most);
    // One choice after the other, for loops over units.
    const double large_enough = factor < smallest ? 0 : factor;
    const double finite = norm < infinite ? large_enough : 0;
    return error < infinite ? finite : 0;
  }
};

// A unit's gradient with regard to several parameters.
struct GradientNorm {
  double square = 0;     // of its norm
  double error = 0;      // what rounding may add to that, squared
  double term_norm = 0;  // the root of the sum of its parameters' squared shares (NormEstimate)

  // One more parameter, of a loss times `scale`, a power of two; its squared norm, what rounding
  // may add to the norm, and the share of its terms' length.
  HD void add(double part, double rounded, double of_terms, double scale) {
    const double unscaled = 1 / scale;  // exact
    square += part * (unscaled * unscaled);
    error += rounded * rounded * (unscaled * unscaled);
    const double more = of_terms * unscaled;
    term_norm = term_norm > 0 ? std::sqrt(term_norm * term_norm + more * more) : more;
  }
  // Whether its terms times the factor are too long to be in one sum with those of others.
  HD bool apart(double factor, double bound) const { return factor * term_norm > bound; }
  // A Gram product may round a norm of zero to just below it.
  HD double norm() const { return std::sqrt(square < 0 ? 0.0 : square); }
  // What rounding may add to it.
  HD double rounding() const { return std::sqrt(error); }
  // The factor for it, and the weight for gradients of a loss times `scale`, factor / scale: either
  // is 0 or at least ClipRule::smallest. The margin has room for errors up to half of it.
  HD double factor(const ClipRule& rule, double bound, double margin, double scale) const {
    const double more = rounding();
    const double y = rule.factor(norm(), bound, margin, more <= margin / 2 * norm() ? 0 : more);
    return y < ClipRule::smallest * scale ? 0 : y;
  }
};

// Rows of Backend::clip_factors: of what it is given, and of what it gives.
struct ClipTerms {
  enum Row : std::int64_t { squares, error_bounds, term_norms, needs_f64, rows };
};
struct ClipSettings {
  enum Row : std::int64_t { bound, scale, live, rows };
};
struct ClipResults {
  enum Row : std::int64_t { norms, factors, weights, needs_f64, rows };
};

// One sample of Backend::clip_factors.
struct ClipSample {
  ClipRule rule;
  double margin;
  std::int64_t parameters, samples;
  const double *terms, *settings;
  double* y;

  ClipSample(const ClipRule& rule, double margin, View terms, View settings, View y)
      : rule(rule),
        margin(margin),
        parameters(terms.size[1]),
        samples(terms.size[2]),
        terms(terms.as<const double>()),
        settings(settings.as<const double>()),
        y(y.as<double>()) {}

  HD void operator()(std::int64_t n) const {
    const double scale = settings[ClipSettings::scale];
    const bool live = static_cast<double>(n) < settings[ClipSettings::live];
    GradientNorm length;
    bool doubt = false;
    for (std::int64_t k = 0; k < parameters; ++k) {
      length.add(term(ClipTerms::squares, k, n), term(ClipTerms::error_bounds, k, n),
                 term(ClipTerms::term_norms, k, n), scale);
      doubt = doubt || !(term(ClipTerms::needs_f64, k, n) == 0);
    }
    const double bound = settings[ClipSettings::bound];
    const double factor = live ? length.factor(rule, bound, margin, scale) : 0;
    doubt = doubt || length.apart(factor, bound);
    y[ClipResults::norms * samples + n] = length.norm();
    y[ClipResults::factors * samples + n] = factor;
    y[ClipResults::weights * samples + n] = factor / scale;
    y[ClipResults::needs_f64 * samples + n] = live && doubt ? 1 : 0;
  }

 private:
  HD double term(ClipTerms::Row row, std::int64_t k, std::int64_t n) const {
    return terms[(row * parameters + k) * samples + n];
  }
};

}  // namespace sotto
