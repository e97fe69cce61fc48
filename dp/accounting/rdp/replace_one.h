// Renyi divergences of sampled batches when one record is replaced by another. Derivation in
// docs/appendix/proofs-accounting.md, section 6.
#pragma once

#include <span>
#include <vector>

namespace sotto {

// Upper bounds on the Renyi divergences, in nats, at these orders a > 1, of one Gaussian release on
// a batch in which a record takes part with probability q, drawn without replacement or by Poisson
// sampling, when one record is replaced. With s = sigma / 2, A of section 1 for q, s and a, and Phi
// the normal distribution function:
//   ln(A + (a-1) q min(q a/2 (e^{1/s^2} - 1) Phi(3/(2s)), 2 Phi(1/(2s)) - 1)) / (a - 1),
// never above a / (2 s^2), the divergence without sampling. From the pair of Zhu, Dong and Wang
// (2022), proposition 30; never above theorem 9 of Wang, Balle and Kasiviswanathan (2019). sigma =
// 0 gives infinity. Throws std::invalid_argument unless q is in [0, 1], sigma >= 0 and the orders
// are in (1, 1e6].
std::vector<double> rdp_curve_replaced(double q, double sigma, std::span<const double> orders);

}  // namespace sotto
