// Optimal strategy matrices for prefix sums: the smallest squared error for a given privacy.
#pragma once

#include "dp/noise/correlated/strategy_matrix.h"

namespace sotto {

// The objective of a search. Searches throw std::invalid_argument unless all numbers are >= 1.
struct ErrorObjective {
  std::int64_t steps = 1;                 // rows of the matrix
  Participation participation = {};       // of a record
  PrefixError error = PrefixError::mean;  // mean or maximum over the steps
};

// The banded Toeplitz factor with the smallest squared_error() among those with decreasing positive
// coefficients (Choquette-Choo et al. 2023b, section 4; McKenna 2024): a local minimum, found from
// square_root_factor(), identical on every run. Throws std::invalid_argument unless 1 <= bands <=
// steps.
StrategyMatrix optimize_banded_toeplitz(const ErrorObjective& goal, std::int64_t bands);

// The buffered Toeplitz factor with the smallest squared_error() among those with `buffers` buffers
// (McMahan et al. 2024, section 4). Throws std::invalid_argument unless 0 <= buffers <= 16.
StrategyMatrix optimize_buffered_toeplitz(const ErrorObjective& goal, int buffers);

}  // namespace sotto
