// How noise is correlated over the steps of a plan. What training uses are prefix sums A X of the
// gradients X, one row for each step. For a lower-triangular C the matrix mechanism releases
// X + C^-1 Z with independent normal Z: a function of C X + Z, the Gaussian mechanism for C X
// (Denisov et al. 2022). A good C makes the noise of prefix sums, A C^-1 Z, small for the
// sensitivity of C X. docs/correlated_noise.md compares them.
#pragma once

#include <cstdint>
#include <limits>
#include <variant>
#include <vector>

namespace sotto {

// Binary tree aggregation (Dwork et al. 2010; DP-FTRL, Kairouz et al. 2021): row t sums the steps
// of the tree's node that ends at step t and is a left child. No other node is ever used.
struct TreeFactor {
  bool operator==(const TreeFactor&) const = default;
};

// C[t, s] = coefficients[t - s], 0 from so many steps apart on (Choquette-Choo et al. 2023b;
// McKenna 2024). {1} is independent noise.
struct BandedToeplitz {
  std::vector<double> coefficients;
  bool operator==(const BandedToeplitz&) const = default;
};

// Buffered linear Toeplitz: C[t, s] = sum_i scales[i] decays[i]^(t-s-1) below the diagonal, 1 on it
// (Dvijotham et al. 2024; McMahan et al. 2024).
struct BufferedToeplitz {
  std::vector<double> decays, scales;
  bool operator==(const BufferedToeplitz&) const = default;
};

using StrategyFactor = std::variant<TreeFactor, BandedToeplitz, BufferedToeplitz>;

// In how many steps a record can take part: those are `separation` or more apart, and at most
// `most`.
struct Participation {
  std::int64_t separation = 1;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};

// A factor C for a number of steps, counted from 0. C is not negative and has ones on its diagonal.
class StrategyMatrix {
 public:
  // The numbers of the factor are rounded to multiples of 2^-40, so that arithmetic with them can
  // be exact. Throws std::invalid_argument unless steps >= 1, there is a first coefficient of 1,
  // and the others are in [0, 1]; decays in [0, 1), as many scales >= 0, with a sum of at most 1.
  StrategyMatrix(StrategyFactor factor, std::int64_t steps);

  const StrategyFactor& factor() const { return factor_; }
  std::int64_t steps() const { return steps_; }
  // C[t, s] = 0 for t - s >= bands.
  std::int64_t bands() const;
  // C[row, column].
  double entry(std::int64_t row, std::int64_t column) const;

  // The most that C X can change by, in the Frobenius norm, when one record changes the rows in
  // which it takes part by vectors of norm 1 at most. Exact for Toeplitz coefficients that do not
  // increase: the worst are steps 0, b, 2b, ... (Kalinin and Lampert 2024), and with at most b
  // bands for any. Others are bounded from above: a Toeplitz factor by one that does not increase,
  // a tree level by level. Throws std::invalid_argument unless both numbers are >= 1.
  double sensitivity(Participation participation) const;

  // C^-1 z, in double precision, for one number each step.
  std::vector<double> solve(std::vector<double> z) const;
  // Of (C^-1 Z)[step], for Z of variance 1.
  double noise_variance(std::int64_t step) const;
  // Of (A C^-1 Z)[t], the noise of the sum of the first t + 1 steps, for Z of variance 1.
  std::vector<double> prefix_variances() const;

 private:
  double tree_sensitivity(Participation participation) const;

  StrategyFactor factor_;
  std::int64_t steps_;
  std::vector<double> column_;  // C[t, 0]
  std::vector<double> noise_variances_;
};

// The square root of A: c_0 = 1, c_j = c_(j-1) (2j - 1) / 2j (Fichtenberger et al. 2023), the first
// `bands` of them. Throws std::invalid_argument unless bands >= 1.
BandedToeplitz square_root_factor(std::int64_t bands);

// Which squared error of the prefix sums counts: the mean over the steps, or the largest.
enum class PrefixError { mean, max };

// That error for noise of standard deviation 1 x sensitivity: prefix_variances() times the squared
// sensitivity.
double squared_error(const StrategyMatrix& strategy, Participation participation,
                     PrefixError error);

}  // namespace sotto
