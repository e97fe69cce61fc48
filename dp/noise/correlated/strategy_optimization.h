// The best factors for prefix sums: the least squared error for a given privacy.
#pragma once

#include "dp/noise/correlated/strategy_matrix.h"

namespace sotto {

// What a factor is to be good for. The searches throw std::invalid_argument unless all numbers are
// >= 1.
struct ErrorObjective {
  std::int64_t steps = 1;
  Participation participation = {};
  PrefixError error = PrefixError::mean;
};

// The banded Toeplitz factor with the least squared_error() among those whose coefficients fall
// from 1 and stay positive (Choquette-Choo et al. 2023b, section 4; McKenna 2024). A local minimum,
// found from square_root_factor(); the same on every run. Throws std::invalid_argument unless
// 1 <= bands <= steps.
StrategyMatrix best_banded_toeplitz(const ErrorObjective& goal, std::int64_t bands);

// The same among buffered factors with that many buffers (McMahan et al. 2024, section 4). Throws
// std::invalid_argument unless 0 <= buffers <= 16.
StrategyMatrix best_buffered_toeplitz(const ErrorObjective& goal, int buffers);

}  // namespace sotto
