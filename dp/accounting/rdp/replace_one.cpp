#include "dp/accounting/rdp/replace_one.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "dp/accounting/rdp/rdp.h"
#include "dp/numerics/log_sum.h"

namespace sotto {

std::vector<double> rdp_curve_replaced(double q, double sigma, std::span<const double> orders) {
  constexpr double min = 1e-50;  // below this noise moments overflow
  const double s = sigma / 2;
  std::vector<double> curve = rdp_curve(q, s, orders);
  if (q == 0 || q == 1) return curve;
  if (s < min) return rdp_curve(1, s, orders);
  const double above = 0.5 * std::erfc(-1.5 / (s * std::numbers::sqrt2));
  const double log_square = std::log(0.5 * q * above) + log_expm1(1 / (s * s));
  const double log_distance = std::log(std::erf(0.5 / (s * std::numbers::sqrt2)));
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const double a = orders[i];
    LogSum excess;
    excess.add(log_expm1((a - 1) * curve[i]));
    excess.add(std::log((a - 1) * q) + std::min(std::log(a) + log_square, log_distance));
    curve[i] = std::min(log1p_exp(excess.log()) / (a - 1), a / (2 * s * s));
  }
  return curve;
}

}  // namespace sotto
