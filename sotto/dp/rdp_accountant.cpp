#include "sotto/dp/rdp_accountant.h"

#include <algorithm>
#include <utility>

#include "sotto/core/error.h"

namespace sotto {

RdpAccountant::RdpAccountant(std::vector<double> orders)
    : orders_(std::move(orders)), rdp_(orders_.size(), 0.0) {
  check(!orders_.empty(), "rdp accountant: no orders");
  rdp_curve(0, 1, orders_);  // throws for an order out of range
}

void RdpAccountant::compose(const Event& event, std::int64_t count) {
  check_event("compose", event);
  check(count >= 0, "compose: {} releases", count);
  check(event.sampling == Sampling::full_batch || event.sampling == Sampling::poisson,
        "compose: the rdp accountant has no proof for {} batches", sotto::name(event.sampling));
  if (count == 0) return;
  auto curve = curves_.find(event);
  if (curve == curves_.end()) {
    std::vector<double> rdp = rdp_curve(event.sampling_rate, event.noise_multiplier, orders_);
    curve = curves_.emplace(event, std::move(rdp)).first;
  }
  for (std::size_t i = 0; i < rdp_.size(); ++i) {
    rdp_[i] += static_cast<double>(count) * curve->second[i];
  }
}

bool RdpAccountant::order_at_edge(double delta) const {
  const RdpBound best = best_epsilon(delta);
  const auto [low, high] = std::minmax_element(orders_.begin(), orders_.end());
  return best.value > 0 && (best.order == *low || best.order == *high);
}

}  // namespace sotto
