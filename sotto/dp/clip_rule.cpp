#include "sotto/dp/clip_rule.h"

#include <algorithm>
#include <cmath>

namespace sotto {

double ClipRule::factor(double norm, double bound, double margin, double error) const {
  constexpr double opacus_eps = 1e-6;
  constexpr double smallest = 0x1p-100;
  if (!std::isfinite(norm) || !std::isfinite(error)) return 0;
  double wanted = 1;
  switch (kind) {
    case Kind::minimum: break;
    case Kind::opacus: wanted = std::min(1.0, bound / (norm + opacus_eps)); break;
    case Kind::automatic: wanted = bound / (norm + gamma); break;
    case Kind::normalise: wanted = norm > 0 ? bound / norm : 0; break;
    case Kind::adaptive: wanted = bound / (norm + gamma / (norm + gamma)); break;
  }
  const double most = bound * (1 - margin) / (norm + error);  // infinite for 0
  const double factor = std::min(wanted, most);
  return factor < smallest ? 0 : factor;
}

}  // namespace sotto
