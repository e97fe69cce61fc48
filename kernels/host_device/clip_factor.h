// The clip rules for all devices: from the norm of a gradient to its clip factor. Device code can
// include this header.
#pragma once

#include <limits>

#include "core/half.h"

namespace sotto {

// A clipping rule: the factor for a gradient of norm n and a clip bound C. For every rule, factor *
// n <= C.
struct ClipRule {
  enum class Kind {
    minimum,    // min(1, C / n)                                (Abadi et al. 2016)
    opacus,     // min(1, C / (n + 1e-6))                       (as Opacus clips, for comparison)
    auto_s,     // C / (n + gamma)                              (Bu et al. 2023, AUTO-S)
    normalize,  // C / n; 0 for n = 0
    psac,       // C / (n + gamma / (n + gamma))                (Xia et al. 2023, PSAC)
  };
  Kind kind = Kind::minimum;  // of the rule
  double gamma = 0.01;        // of auto_s and psac
  // Smaller factors become 0, because their products must stay within the range of f32.
  static constexpr double smallest = 0x1p-100;
  // A lower limit of every norm. It exceeds the part of a norm, or of its gradient, that can be
  // lost by underflow: of numbers in f32, of squares in f64.
  static constexpr double lost = 0x1p-120;

  // The clip factor, with factor * (n + error) <= C (1 - margin): `margin` is a relative slack for
  // rounding, and `error` an absolute bound on the rounding error of the norm. 0 if norm or error
  // is not finite, or so large that the factor would be below `smallest`.
  HD double factor(double norm, double bound, double margin, double error = 0) const {
    constexpr double opacus_eps = 1e-6, infinite = std::numeric_limits<double>::infinity();
    double wanted = 1;
    switch (kind) {
      case Kind::minimum: break;
      case Kind::opacus: wanted = lesser(1, bound / (norm + opacus_eps)); break;
      case Kind::auto_s: wanted = bound / (norm + gamma); break;
      case Kind::normalize: wanted = norm > 0 ? bound / norm : 0; break;
      case Kind::psac: wanted = bound / (norm + gamma / (norm + gamma)); break;
    }
    const double max = bound * (1 - margin) / (norm + error);  // infinite for a norm of 0
    const double factor = lesser(wanted, max);
    // Separate selections vectorize in loops over units.
    const double large_enough = factor < smallest ? 0 : factor;
    const double finite = norm < infinite ? large_enough : 0;
    return error < infinite ? finite : 0;
  }

 private:
  // As std::min, whose header is a long one.
  HD static double lesser(double a, double b) { return b < a ? b : a; }
};

}  // namespace sotto
