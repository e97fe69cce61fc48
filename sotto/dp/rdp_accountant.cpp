#include "sotto/dp/rdp_accountant.h"

#include <algorithm>
#include <utility>

#include "sotto/core/error.h"
#include "sotto/dp/rdp_balls_and_bins.h"
#include "sotto/dp/rdp_replaced.h"

namespace sotto {

RdpAccountant::RdpAccountant(std::vector<double> orders, Relation relation)
    : Accountant(AccountantKind::rdp, relation),
      orders_(std::move(orders)),
      rdp_(orders_.size(), 0.0) {
  check(!orders_.empty(), "rdp accountant: no orders");
  rdp_curve(0, 1, orders_);  // throws for an order out of range
}

std::vector<double> RdpAccountant::curve(const Event& event) const {
  const double sigma = event.noise_multiplier, q = event.sampling_rate;
  if (event.sampling == Sampling::balls_and_bins) {
    return rdp_curve_balls_and_bins(event.batches, sigma, orders_);
  }
  if (relation() == Relation::add_or_remove_one) return rdp_curve(q, sigma, orders_);
  return rdp_curve_replaced(q, sigma, orders_);
}

void RdpAccountant::charge(const Event& event, std::int64_t count) {
  auto known = curves_.find(event);
  if (known == curves_.end()) known = curves_.emplace(event, curve(event)).first;
  for (std::size_t i = 0; i < rdp_.size(); ++i) {
    rdp_[i] += static_cast<double>(count) * known->second[i];
  }
}

bool RdpAccountant::order_at_edge(double delta) const {
  const RdpBound best = best_epsilon(delta);
  const auto [low, high] = std::minmax_element(orders_.begin(), orders_.end());
  return best.value > 0 && (best.order == *low || best.order == *high);
}

}  // namespace sotto
