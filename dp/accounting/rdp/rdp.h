// Renyi differential privacy: the divergence of one step, and the epsilon and delta that follow
// from divergences at several orders. Derivations in docs/appendix/proofs-accounting.md.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace sotto {

// The Renyi divergence of order alpha > 1 of one step of the Poisson-subsampled Gaussian mechanism
// (sampling rate q, noise multiplier sigma; add or remove one record), in nats:
//   ln E_{z ~ N(0, sigma^2)}[(1 - q + q e^{(2z-1)/(2 sigma^2)})^alpha] / (alpha - 1).
// The relative error is about 1e-13; for a noise multiplier below 0.005 and a fractional order it
// is an upper bound. sigma = 0 gives infinity. Throws std::invalid_argument unless q is in [0, 1],
// sigma >= 0 and order in (1, 1e6]. Mironov, Talwar and Zhang (2019).
double rdp_sampled_gaussian(double q, double sigma, double order);

// Returns rdp_sampled_gaussian() at each of the orders.
std::vector<double> rdp_curve(double q, double sigma, std::span<const double> orders);

// Orders from 1.01 to 10,000, dense enough that epsilon from 0.01 to 50 is within about 0.1 % of
// the best over all orders.
const std::vector<double>& default_orders();

// A bound, and the order that gave it.
struct RdpBound {
  double value = 0;  // of epsilon or delta
  double order = 0;  // that gave the bound
};

// The smallest epsilon that divergences rdp[i] at orders[i] > 1 prove for this delta:
//   min over alpha of rdp + ln(1 - 1/alpha) - ln(delta alpha) / (alpha - 1)
// (Canonne, Kamath and Steinke 2020, proposition 12), and 0 where this is negative or where
// delta^2 > 1 - e^{-rdp}, a bound on the total variation. Throws std::invalid_argument unless delta
// is in (0, 1).
RdpBound rdp_epsilon(std::span<const double> orders, std::span<const double> rdp, double delta);

// The smallest delta that divergences prove for this epsilon, by the same two bounds; at most 1.
// Throws std::invalid_argument unless epsilon is finite and >= 0.
RdpBound rdp_delta(std::span<const double> orders, std::span<const double> rdp, double epsilon);

// The bounds above for increasing orders and divergences such that (order - 1) rdp(order) is
// convex, as it is for every mechanism. The minimized function of the order then falls and rises
// only once (docs/appendix/proofs-accounting.md, section 2), and rdp(i), the divergence at
// orders[i], is computed for few orders. Without convexity the bound is valid, too, but may not be
// the smallest.
using RdpOfOrder = std::function<double(std::size_t i)>;
RdpBound rdp_epsilon(std::span<const double> orders, const RdpOfOrder& rdp, double delta);
RdpBound rdp_delta(std::span<const double> orders, const RdpOfOrder& rdp, double epsilon);

}  // namespace sotto
