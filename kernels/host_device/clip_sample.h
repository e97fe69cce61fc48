// Clipping of one unit for all devices: its norm over several parameters, then its clip factor.
// Device code can include this header.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/half.h"
#include "core/view.h"
#include "kernels/host_device/clip_factor.h"

namespace sotto {

// The norm of a privacy unit's gradient with respect to several parameters, summed up by add().
struct GradientNorm {
  double square = 0;     // the squared norm
  double error = 0;      // the squared bound of the norm's rounding error
  double term_norm = 0;  // root of the sum of the parameters' squared term norms (NormEstimate)

  // Adds one parameter of a loss multiplied by `scale`, a power of two: its squared norm, the bound
  // of the norm's rounding error, and its term norm.
  HD void add(double part, double rounded, double of_terms, double scale) {
    const double unscaled = 1 / scale;  // exact for a power of two
    square += part * (unscaled * unscaled);
    error += rounded * rounded * (unscaled * unscaled);
    const double more = of_terms * unscaled;
    term_norm = term_norm > 0 ? std::sqrt(term_norm * term_norm + more * more) : more;
  }
  // True if the clipped summands would swamp other samples in a shared f32 sum: their norm exceeds
  // the tolerated multiple of the bound.
  HD bool apart(double factor, double bound) const { return factor * term_norm > bound; }
  // The norm; a Gram product may round a squared norm of zero to a small negative number.
  HD double norm() const { return std::sqrt(square < 0 ? 0.0 : square); }
  // The bound of the norm's rounding error.
  HD double rounding() const { return std::sqrt(error); }
  // The clip factor. It is 0 if it, or the weight factor / scale for gradients of a loss multiplied
  // by `scale`, would be below ClipRule::smallest. A rounding error up to half of the margin is
  // covered by the margin.
  HD double factor(const ClipRule& rule, double bound, double margin, double scale) const {
    const double more = rounding() + ClipRule::lost / (scale < 1 ? scale : 1);
    const double y = rule.factor(norm(), bound, margin, more <= margin / 2 * norm() ? 0 : more);
    return y < ClipRule::smallest * scale ? 0 : y;
  }
};

// Rows of the arguments of Backend::clip_factors.
struct ClipTerms {
  enum Row : std::int64_t { squares, error_bounds, term_norms, needs_f64, rows };
};
struct ClipSettings {
  enum Row : std::int64_t { bound, scale, live, rows };
};
struct ClipResults {
  enum Row : std::int64_t { norms, factors, weights, needs_f64, rows };
};

// Computes one sample of Backend::clip_factors.
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
