#include "dp/accounting/rdp/rdp_accountant.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/threads/parallel.h"
#include "dp/accounting/rdp/balls_and_bins.h"
#include "dp/accounting/rdp/replace_one.h"

namespace sotto {

namespace {

// Returns whether the divergences are those of a mechanism, and not bounds on them.
bool exact(const Event& event, NeighboringRelation relation) {
  return event.sampling != Sampling::balls_and_bins &&
         (relation == NeighboringRelation::add_or_remove_one || event.sampling_rate == 1);
}

// Returns whether (order - 1) times the sum of the terms is convex: that of a mechanism is.
bool convex(const std::map<Event, RdpTerm>& terms, NeighboringRelation relation) {
  return std::ranges::all_of(terms, [&](const auto& term) { return exact(term.first, relation); });
}

// The sum of the terms at orders[i]; computes missing terms.
double divergence(std::map<Event, RdpTerm>& terms, NeighboringRelation relation,
                  std::span<const double> orders, std::size_t i) {
  const double distance = relation == NeighboringRelation::replace_one ? 2 : 1;
  std::vector<std::pair<const Event, RdpTerm>*> unknown;
  for (auto& entry : terms) {
    if (std::isnan(entry.second.curve[i])) unknown.push_back(&entry);
  }
  constexpr std::int64_t grain = 16;
  parallel_for(static_cast<std::int64_t>(unknown.size()), grain, [&](auto begin, auto end) {
    for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k) {
      auto& [event, term] = *unknown[k];
      term.curve[i] =
          rdp_sampled_gaussian(event.sampling_rate, event.noise_multiplier / distance, orders[i]);
    }
  });
  double sum = 0;
  for (const auto& [event, term] : terms) sum += term.count * term.curve[i];
  return sum;
}

}  // namespace

RdpAccountant::RdpAccountant(std::vector<double> orders, NeighboringRelation relation)
    : Accountant(AccountantKind::rdp, relation), orders_(std::move(orders)) {
  check(!orders_.empty(), "rdp accountant: no orders");
  for (const double order : orders_) rdp_sampled_gaussian(1, 1, order);  // throws out of range
  std::ranges::sort(orders_);
  orders_.erase(std::unique(orders_.begin(), orders_.end()), orders_.end());
}

void RdpAccountant::charge(const Event& event, std::int64_t count) {
  const auto [term, is_new] = terms_.try_emplace(event);
  RdpTerm& known = term->second;
  known.count += static_cast<double>(count);
  if (!is_new) return;
  const double sigma = event.noise_multiplier;
  if (event.sampling == Sampling::balls_and_bins) {
    known.curve = rdp_curve_balls_and_bins(event.batches, sigma, orders_);
  } else if (!exact(event, relation())) {
    known.curve = rdp_curve_replaced(event.sampling_rate, sigma, orders_);
  } else {
    known.curve.assign(orders_.size(), std::numeric_limits<double>::quiet_NaN());
  }
}

std::vector<double> RdpAccountant::rdp() const {
  std::vector<double> all(orders_.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = divergence(terms_, relation(), orders_, i);
  return all;
}

RdpBound RdpAccountant::best_epsilon(double delta) const {
  if (!convex(terms_, relation())) return rdp_epsilon(orders_, rdp(), delta);
  return rdp_epsilon(
      orders_, [this](std::size_t i) { return divergence(terms_, relation(), orders_, i); }, delta);
}

RdpBound RdpAccountant::best_delta(double epsilon) const {
  if (!convex(terms_, relation())) return rdp_delta(orders_, rdp(), epsilon);
  return rdp_delta(
      orders_, [this](std::size_t i) { return divergence(terms_, relation(), orders_, i); },
      epsilon);
}

bool RdpAccountant::order_at_edge(double delta) const {
  const RdpBound best = best_epsilon(delta);
  return best.value > 0 && (best.order == orders_.front() || best.order == orders_.back());
}

}  // namespace sotto
