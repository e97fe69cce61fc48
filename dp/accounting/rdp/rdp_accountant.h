// Accounting by Renyi divergences: valid for every mechanism here, and cheap. The divergences of
// releases add up, order by order.
#pragma once

#include <map>
#include <vector>

#include "dp/accounting/accountant.h"
#include "dp/accounting/rdp/rdp.h"

namespace sotto {

// Releases of one kind, and the divergence of one of them at each order: NaN until computed.
struct RdpTerm {
  double count = 0;           // number of releases
  std::vector<double> curve;  // in nats, by order
};

// The accountant for most samplings, and the fastest. Divergences are computed when an answer needs
// their order, and kept: one thread at a time may use an accountant.
class RdpAccountant final : public Accountant {
 public:
  // Throws std::invalid_argument unless there is an order and all are in (1, 1e6].
  explicit RdpAccountant(std::vector<double> orders = default_orders(),
                         NeighboringRelation relation = NeighboringRelation::add_or_remove_one);

  // The bounds, with the orders that gave them, not counting truncation.
  RdpBound best_epsilon(double delta) const;
  RdpBound best_delta(double epsilon) const;  // and the order that gives it
  // Returns whether a smaller or larger order than those given might prove a smaller epsilon.
  bool order_at_edge(double delta) const;
  // The divergence of everything composed, for each order from the smallest.
  std::vector<double> rdp() const;

 private:
  void charge(const Event& event, std::int64_t count) override;
  double charged_epsilon(double delta) const override { return best_epsilon(delta).value; }
  double charged_delta(double epsilon) const override { return best_delta(epsilon).value; }

  std::vector<double> orders_;  // increasing
  mutable std::map<Event, RdpTerm> terms_;
};

}  // namespace sotto
