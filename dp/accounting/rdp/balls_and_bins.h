// Renyi divergences of balls-and-bins epochs, in which every record takes part in one batch, drawn
// uniformly and independently of other records. Derivation in docs/appendix/proofs-accounting.md,
// section 6.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sotto {

// Upper bounds on the Renyi divergences, in nats, at these orders > 1, of a whole epoch of
// `batches` Gaussian releases with this noise multiplier, when one record is added or removed. The
// pair is
//   P = mean over i of N(e_i, sigma^2 I) and Q = N(0, sigma^2 I) in as many dimensions as batches
// (Chua et al. 2025; Feldman and Shenfeld 2025); the larger divergence of (P, Q) and (Q, P) counts.
// For (P, Q), integer orders up to 256 are exact to 1e-10; all further orders give bounds. sigma =
// 0 gives infinity. Throws std::invalid_argument unless batches >= 1, sigma >= 0 and the orders are
// in (1, 1e6].
std::vector<double> rdp_curve_balls_and_bins(std::int64_t batches, double sigma,
                                             std::span<const double> orders);

// The divergence of (Q, P) alone, a record added, rounded up by a relative 2e-9 at most; that of
// (P, Q) was larger wherever both were computed. Throws std::invalid_argument as above, and unless
// sigma >= 0.1 and order <= 25 batches sigma.
double rdp_balls_and_bins_added(std::int64_t batches, double sigma, double order);

}  // namespace sotto
