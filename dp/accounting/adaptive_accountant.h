// Accounting for releases whose settings or number were chosen by looking at earlier ones
// (History::adaptive). docs/appendix/proofs-accounting.md, section 7, has the proof.
#pragma once

#include "dp/accounting/rdp/rdp_accountant.h"

namespace sotto {

// An accountant by Renyi divergences of orders that are fixed before the first release, each with a
// share of delta: the order that is best for the planned releases gets half of it, and all orders
// share the rest equally. Its epsilon is larger than that of the accountants for settings fixed in
// advance. delta() throws, because the shares need a delta fixed in advance.
class AdaptiveAccountant final : public Accountant {
 public:
  // `plans` were written down before the first release. Throws std::invalid_argument for a plan
  // without a proof.
  explicit AdaptiveAccountant(NeighboringRelation relation = NeighboringRelation::add_or_remove_one,
                              const EventCounts& plans = {});

 private:
  void charge(const Event& event, std::int64_t count) override;
  double charged_epsilon(double delta) const override;
  double charged_delta(double epsilon) const override;

  RdpAccountant composed_, planned_;  // the releases, and their plans
};

// Makes an AdaptiveAccountant with these plans at each call.
AccountantFactory adaptive_accountant_factory(
    NeighboringRelation relation = NeighboringRelation::add_or_remove_one, EventCounts plans = {});

}  // namespace sotto
