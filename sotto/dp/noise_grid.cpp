#include "sotto/dp/noise_grid.h"

#include "sotto/core/error.h"
#include "sotto/core/rounded_gaussian.h"

namespace sotto {

NoiseGrid noise_grid(double noise_multiplier, double sensitivity, std::int64_t elements) {
  check(noise_multiplier > 0 && sensitivity > 0 && elements > 0,
        "noise grid: noise multiplier {}, sensitivity {}, {} elements", noise_multiplier,
        sensitivity, elements);
  const double share = rounding_share * sensitivity * std::min(noise_multiplier, 1.0);
  const int exponent = std::ilogb(share / std::sqrt(static_cast<double>(elements)));
  constexpr int least = -1000, most = 960;
  check(exponent >= least && exponent <= most,
        "noise grid: sensitivity {} with noise multiplier {} is out of range", sensitivity,
        noise_multiplier);
  // More than all roundings here, those in the exponent included: they are below 2^-50.
  constexpr double slack = 0x1p-45;
  const double enlarged = std::ldexp(sensitivity, -exponent) * (1 + rounding_share + slack);
  const double deviation = noise_multiplier * enlarged;
  check(deviation < RoundedGaussian::deviation_limit,
        "noise grid: a noise multiplier of {} is too large for {} elements", noise_multiplier,
        elements);
  return {std::ldexp(1.0, exponent), deviation};
}

}  // namespace sotto
