// The root of a monotone function, approached from the safe side.
#pragma once

#include <cmath>
#include <numeric>

namespace sotto {

// A point x with excess(x) <= 0 within `tolerance` |x| of one with excess > 0. Requires
// excess(unsafe) > 0 >= excess(safe). False position (Illinois), with bisection at every fourth
// step, so that jumps and infinite values do no harm.
template <class Function>
double safe_root(double unsafe, double safe, double tolerance, const Function& excess) {
  double above = excess(unsafe), below = excess(safe);
  bool last_was_unsafe = false;
  for (int step = 1; std::abs(safe - unsafe) > tolerance * std::abs(safe); ++step) {
    double x = safe + (unsafe - safe) * (below / (below - above));
    const bool bisect = step % 4 == 0 || !std::isfinite(x) || x == safe || x == unsafe;
    if (bisect) x = std::midpoint(unsafe, safe);
    if (x == safe || x == unsafe) break;  // adjacent doubles
    const double y = excess(x);
    const bool is_unsafe = y > 0;
    (is_unsafe ? unsafe : safe) = x;
    (is_unsafe ? above : below) = y;
    // The value at an end that stays a second time is halved, so that the next point lies beyond
    // the root.
    if (step > 1 && is_unsafe == last_was_unsafe) (is_unsafe ? below : above) /= 2;
    last_was_unsafe = is_unsafe;
  }
  return safe;
}

}  // namespace sotto
