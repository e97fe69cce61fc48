// Accounting by Renyi divergences: safe for every mechanism here, and cheap. The divergences of
// the releases add up, order by order.
#pragma once

#include <map>
#include <vector>

#include "sotto/dp/accountant.h"
#include "sotto/dp/rdp.h"

namespace sotto {

class RdpAccountant final : public Accountant {
 public:
  // Throws std::invalid_argument unless there is an order and all are in (1, 1e6].
  explicit RdpAccountant(std::vector<double> orders = default_orders(),
                         Relation relation = Relation::add_or_remove_one);

  // What the divergences prove with the orders that gave it, were no batch to lose records.
  RdpBound best_epsilon(double delta) const { return rdp_epsilon(orders_, rdp_, delta); }
  RdpBound best_delta(double epsilon) const { return rdp_delta(orders_, rdp_, epsilon); }
  // Whether a smaller or larger order than there is might prove a smaller epsilon.
  bool order_at_edge(double delta) const;
  const std::vector<double>& orders() const { return orders_; }
  // The divergence of everything composed, for each order.
  const std::vector<double>& rdp() const { return rdp_; }

 private:
  void charge(const Event& event, std::int64_t count) override;
  double charged_epsilon(double delta) const override { return best_epsilon(delta).value; }
  double charged_delta(double epsilon) const override { return best_delta(epsilon).value; }
  std::vector<double> curve(const Event& event) const;

  std::vector<double> orders_, rdp_;
  std::map<Event, std::vector<double>> curves_;  // of one release of each kind seen
};

}  // namespace sotto
