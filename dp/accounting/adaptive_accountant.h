// Accounting for releases whose settings, and whose number, were chosen by looking at earlier ones:
// what History::adaptive says. docs/accounting.md, section 7, has the proof.
#pragma once

#include "dp/accounting/rdp/rdp_accountant.h"

namespace sotto {

// Renyi divergences of orders that are fixed before anything is released, each with a share of
// delta: the order that is best for what was planned then has half of it, and all have as much of
// the rest. Larger than what the other accountants prove for settings fixed in advance.
// delta() is refused: the shares hold for a delta that is fixed in advance, too.
class AdaptiveAccountant final : public Accountant {
 public:
  // `plans` were written down before the first release. Throws std::invalid_argument where there is
  // no proof for one of them.
  explicit AdaptiveAccountant(NeighboringRelation relation = NeighboringRelation::add_or_remove_one,
                              const EventCounts& plans = {});

 private:
  void charge(const Event& event, std::int64_t count) override {
    divergences_.compose(event, count);
  }
  double charged_epsilon(double delta) const override;
  double charged_delta(double epsilon) const override;

  std::vector<double> log_shares(double delta) const;

  RdpAccountant divergences_;
  std::vector<double> planned_;  // divergences of the plans
};

NewAccountant new_adaptive_accountant(
    NeighboringRelation relation = NeighboringRelation::add_or_remove_one, EventCounts plans = {});

}  // namespace sotto
