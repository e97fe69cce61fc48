// Strategies of every kind, and their factors as dense matrices.
#pragma once

#include <vector>

#include <Eigen/Dense>

#include "dp/noise/correlated/strategy_matrix.h"

namespace sotto {

inline std::vector<StrategyMatrix> strategies(std::int64_t steps) {
  std::vector<StrategyMatrix> all;
  all.emplace_back(TreeFactor{}, steps);
  all.emplace_back(BandedToeplitz{{1}}, steps);
  all.emplace_back(BandedToeplitz{{1, 0.6, 0.41, 0.33}}, steps);
  all.emplace_back(BandedToeplitz{{1, 0.2, 0.7}}, steps);
  all.emplace_back(square_root_factor(steps), steps);
  all.emplace_back(BufferedToeplitz{{0.97}, {0.2}}, steps);
  all.emplace_back(BufferedToeplitz{{0.4, 0.9, 0.995}, {0.2, 0.15, 0.07}}, steps);
  return all;
}

inline Eigen::MatrixXd dense(const StrategyMatrix& strategy) {
  Eigen::MatrixXd c(strategy.steps(), strategy.steps());
  for (std::int64_t row = 0; row < strategy.steps(); ++row) {
    for (std::int64_t column = 0; column < strategy.steps(); ++column) {
      c(row, column) = strategy.entry(row, column);
    }
  }
  return c;
}

}  // namespace sotto
