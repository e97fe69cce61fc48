// Strategy matrices of the matrix-factorization mechanism, which correlate noise over the steps of
// a plan. Training uses prefix sums A X of the gradients X, one row for each step. For a
// lower-triangular C the mechanism releases X + C^-1 Z with independent normal Z: a function of C X
// + Z, the Gaussian mechanism for C X (Denisov et al. 2022). A good C makes the noise of the prefix
// sums, A C^-1 Z, small compared with the sensitivity of C X.
// docs/appendix/proofs-correlated-noise.md compares them.
#pragma once

#include <cstdint>
#include <limits>
#include <variant>
#include <vector>

namespace sotto {

// Binary tree aggregation (Dwork et al. 2010; DP-FTRL, Kairouz et al. 2021): row t sums the steps
// of the tree's node that ends at step t and is a left child; no other node is used.
struct TreeFactor {
  bool operator==(const TreeFactor&) const = default;
};

// C[t, s] = coefficients[t - s], and 0 for t - s >= coefficients.size() (Choquette-Choo et al.
// 2023b; McKenna 2024). {1} is independent noise.
struct BandedToeplitz {
  std::vector<double> coefficients;  // the first one is 1
  bool operator==(const BandedToeplitz&) const = default;
};

// Buffered linear Toeplitz (BLT): C[t, s] = sum_i scales[i] decays[i]^(t-s-1) below the diagonal, 1
// on it (Dvijotham et al. 2024; McMahan et al. 2024).
struct BufferedToeplitz {
  std::vector<double> decays, scales;  // as many of each as buffers
  bool operator==(const BufferedToeplitz&) const = default;
};

// The forms that a strategy matrix may have.
using StrategyFactor = std::variant<TreeFactor, BandedToeplitz, BufferedToeplitz>;

// Min-sep participation (Choquette-Choo et al. 2023b): a record takes part in at most
// max_participations steps, which are at least min_separation apart.
struct Participation {
  std::int64_t min_separation = 1;  // in steps
  // Default: as many as fit.
  std::int64_t max_participations = std::numeric_limits<std::int64_t>::max();
};

// The strategy matrix C for a number of steps, counted from 0. C is non-negative and has ones on
// its diagonal.
class StrategyMatrix {
 public:
  // The factor's numbers are rounded to multiples of 2^-40, so that arithmetic with them is exact.
  // Throws std::invalid_argument unless steps >= 1; coefficients are 1, then in [0, 1]; decays are
  // in [0, 1), with as many scales >= 0, whose sum is at most 1.
  StrategyMatrix(StrategyFactor factor, std::int64_t steps);

  const StrategyFactor& factor() const { return factor_; }
  std::int64_t steps() const { return steps_; }
  // C[t, s] = 0 for t - s >= bands.
  std::int64_t bands() const;
  // C[row, column].
  double entry(std::int64_t row, std::int64_t column) const;

  // The maximum change of C X in the Frobenius norm when one record changes the rows in which it
  // takes part by vectors of norm at most 1. Exact for non-increasing Toeplitz coefficients, whose
  // worst case is steps 0, b, 2b, ... (Kalinin and Lampert 2024), and, with at most b bands, for
  // any. Otherwise an upper bound: that of a non-increasing factor above a Toeplitz factor, or of a
  // tree level by level. Throws std::invalid_argument unless both numbers are >= 1.
  double sensitivity(Participation participation) const;

  // C^-1 z in double precision, for one number each step.
  std::vector<double> solve(std::vector<double> z) const;
  // The variance of (C^-1 Z)[step] for Z of variance 1.
  double noise_variance(std::int64_t step) const;
  // The variance of (A C^-1 Z)[t], the noise of the sum of the first t + 1 steps, for Z of variance
  // 1.
  std::vector<double> prefix_variances() const;

 private:
  double tree_sensitivity(Participation participation) const;

  StrategyFactor factor_;
  std::int64_t steps_;
  std::vector<double> column_;  // C[t, 0]
  std::vector<double> noise_variances_;
};

// The first `bands` coefficients of the square root of A: c_0 = 1, c_j = c_(j-1) (2j - 1) / 2j
// (Fichtenberger et al. 2023). Throws std::invalid_argument unless bands >= 1.
BandedToeplitz square_root_factor(std::int64_t bands);

// The squared error of the prefix sums to minimize: the mean over the steps, or the maximum.
enum class PrefixError { mean, max };

// The squared error for noise of standard deviation 1 x sensitivity: prefix_variances() times the
// squared sensitivity.
double squared_error(const StrategyMatrix& strategy, Participation participation,
                     PrefixError error);

}  // namespace sotto
