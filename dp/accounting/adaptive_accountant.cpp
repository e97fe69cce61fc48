#include "dp/accounting/adaptive_accountant.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace sotto {

namespace {

// Orders with alpha - 1 from 1/2 to 4096 in steps of a factor 2^(1/4): a sampled batch loses much
// of its privacy just above the best order, and with more orders each would get less of delta.
const std::vector<double>& fixed_orders() {
  static const std::vector<double> orders = [] {
    constexpr int first = -4, last = 48;
    std::vector<double> all;
    for (int k = first; k <= last; ++k) all.push_back(1 + std::exp2(0.25 * k));
    return all;
  }();
  return orders;
}

// The epsilon that a divergence proves with one order's share of delta
// (docs/appendix/proofs-accounting.md, section 2).
double epsilon_at(double order, double rdp, double log_share) {
  const double b = order - 1;
  return rdp + std::log(b / order) - (log_share + std::log(order)) / b;
}

bool nothing(const std::vector<double>& rdp) {
  return std::ranges::all_of(rdp, [](double divergence) { return divergence == 0; });
}

// ln of each order's share of delta, given the divergences of the plans.
std::vector<double> log_shares(const std::vector<double>& planned, double delta) {
  const std::vector<double>& orders = fixed_orders();
  const auto count = static_cast<double>(orders.size());
  if (nothing(planned)) return std::vector(orders.size(), std::log(delta / count));
  std::vector<double> epsilons(orders.size());
  for (std::size_t i = 0; i < orders.size(); ++i)
    epsilons[i] = epsilon_at(orders[i], planned[i], std::log(delta));
  std::vector<double> shares(orders.size(), std::log(delta / (2 * count)));
  shares[static_cast<std::size_t>(std::ranges::min_element(epsilons) - epsilons.begin())] =
      std::log(delta * (0.5 + 0.5 / count));
  return shares;
}

}  // namespace

AdaptiveAccountant::AdaptiveAccountant(NeighboringRelation relation, const EventCounts& plans)
    : Accountant(AccountantKind::rdp, relation),
      composed_(fixed_orders(), relation),
      planned_(composed_) {
  for (const auto& [event, count] : plans) planned_.compose(event, count);
}

void AdaptiveAccountant::charge(const Event& event, std::int64_t count) {
  composed_.compose(event, count);
}

double AdaptiveAccountant::charged_epsilon(double delta) const {
  const std::vector<double>& orders = fixed_orders();
  const std::vector<double> rdp = composed_.rdp(), shares = log_shares(planned_.rdp(), delta);
  if (nothing(rdp)) return 0;
  double min = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < orders.size(); ++i)
    min = std::min(min, epsilon_at(orders[i], rdp[i], shares[i]));
  return std::max(0.0, min);
}

double AdaptiveAccountant::charged_delta(double) const {
  throw std::invalid_argument(
      "adaptive accountant: for settings chosen by looking at releases, an epsilon is proved for a "
      "delta fixed in advance, and no delta for an epsilon");
}

AccountantFactory adaptive_accountant_factory(NeighboringRelation relation, EventCounts plans) {
  return [relation, plans = std::move(plans)] {
    return std::make_unique<AdaptiveAccountant>(relation, plans);
  };
}

}  // namespace sotto
