#include "dp/accounting/accountant.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "dp/accounting/selection_cost.h"

namespace sotto {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::array<const char*, 3> names = {"pld", "rdp", "prv"};  // by kind
constexpr std::int64_t max_releases = std::int64_t{1} << 53;

// The samplings that accountants have a proof for, by relation. prv composes the same dominating
// pairs as pld and has the same proofs. docs/appendix/proofs-accounting.md, section 6, gives each.
struct Proof {
  Sampling sampling;
  struct {
    bool pld, rdp;
  } add_or_remove_one, replace_one;
};
constexpr std::array<Proof, 8> proofs = {{
    {Sampling::full_batch, {true, true}, {true, true}},
    {Sampling::poisson, {true, true}, {true, true}},
    {Sampling::truncated_poisson, {true, true}, {true, true}},
    {Sampling::fixed_size, {false, false}, {true, true}},
    {Sampling::partition, {false, false}, {true, true}},
    {Sampling::balls_and_bins, {false, true}, {false, false}},
    {Sampling::cyclic_poisson, {true, true}, {true, true}},
    {Sampling::planned, {true, true}, {true, true}},
}};

bool proved(AccountantKind kind, Sampling sampling, NeighboringRelation relation) {
  const Proof& proof = proofs.at(static_cast<std::size_t>(sampling));
  const auto& by =
      relation == NeighboringRelation::replace_one ? proof.replace_one : proof.add_or_remove_one;
  return kind == AccountantKind::rdp ? by.rdp : by.pld;
}

// Maps an event to the event of the same cost that an accountant charges.
Event charged(const Event& event) {
  Event plain{.noise_multiplier = event.noise_multiplier};
  switch (event.sampling) {
    case Sampling::full_batch:
    case Sampling::partition:
    case Sampling::planned: return plain;
    case Sampling::balls_and_bins:
      if (event.batches == 1) return plain;
      plain.batches = event.batches;
      break;
    default:
      if (event.sampling_rate == 1) return plain;
      plain.sampling_rate = event.sampling_rate;
  }
  const bool independent =
      event.sampling == Sampling::truncated_poisson || event.sampling == Sampling::cyclic_poisson;
  plain.sampling = independent ? Sampling::poisson : event.sampling;
  return plain;
}

}  // namespace

const char* name(AccountantKind kind) { return names.at(static_cast<std::size_t>(kind)); }

AccountantKind parse_accountant(const std::string& name) {
  const auto found = std::ranges::find(names, name);
  check(found != names.end(), "accountant: no accountant is called {}", name);
  return static_cast<AccountantKind>(found - names.begin());
}

std::string unsupported_reason(AccountantKind kind, Sampling sampling,
                               NeighboringRelation relation) {
  if (proved(kind, sampling, relation)) return "";
  const AccountantKind other =
      kind == AccountantKind::rdp ? AccountantKind::pld : AccountantKind::rdp;
  return fmt::format(
      "the {} accountant has no proof for {} batches and {}; {} has one", name(kind),
      name(sampling),
      relation == NeighboringRelation::replace_one ? "replace_one" : "add_or_remove_one",
      proved(other, sampling, relation) ? name(other) : "none");
}

void Accountant::compose(const Event& event, std::int64_t count) {
  check_event("compose", event);
  check(count >= 0 && count <= max_releases, "compose: {} releases", count);
  const std::string reason = unsupported_reason(kind_, event.sampling, relation_);
  check(reason.empty(), "compose: {}", reason);
  if (count == 0) return;
  if (event.batches > 1) check_paid(event, count);
  if (event.paid) return;
  truncation_probability_ = std::min(
      truncation_probability_ + static_cast<double>(count) * event.truncation_probability, 1.0);
  if (event.sampling_rate > 0) charge(charged(event), count);
}

// Checks that every paid batch belongs to an epoch whose first batch was composed.
void Accountant::check_paid(const Event& event, std::int64_t count) {
  Event first = event;
  first.paid = false;
  Epoch& epoch = epochs_[first];
  std::int64_t& of_kind = event.paid ? epoch.paid : epoch.begun;
  check(of_kind <= max_releases, "compose: more than {} {} batches", max_releases,
        sotto::name(event.sampling));
  const std::int64_t paid = epoch.paid + (event.paid ? count : 0);
  check(paid == 0 || event.paid == false || (paid - 1) / (event.batches - 1) < epoch.begun,
        "compose: {} paid {} batches, but {} epochs of {} batches were begun", paid,
        sotto::name(event.sampling), epoch.begun, event.batches);
  of_kind += count;
}

void Accountant::check_delta(double delta) {
  check(delta > 0 && delta < 1, "epsilon: delta {} is not in (0, 1)", delta);
}

void Accountant::check_epsilon(double epsilon) {
  check(epsilon >= 0 && std::isfinite(epsilon), "delta: epsilon {} is not a finite number >= 0",
        epsilon);
}

// Truncation changes both output distributions by at most cut() in total variation, so that
// delta'(epsilon) = delta(epsilon) + (1 + e^epsilon) cut (Chua et al. 2024). The epsilon that
// solves this is the fixed point of an increasing function, approached from below; any epsilon that
// is not below its image is a valid bound.
double Accountant::truncated_epsilon(double delta) const {
  if (truncation_probability_ == 0) return charged_epsilon(delta);
  constexpr double beyond = 1e-7;
  constexpr int max_steps = 100;
  double epsilon = 0;
  for (int step = 0; step < max_steps && epsilon < infinity; ++step) {
    const double left = delta - (1 + std::exp(epsilon)) * truncation_probability_;
    if (!(left > 0)) return infinity;
    const double next = charged_epsilon(left);
    if (next <= epsilon) return epsilon;
    epsilon = next * (1 + beyond);
  }
  return infinity;
}

// With a selection delta'(epsilon) = mean_runs delta(epsilon - added_epsilon).
double Accountant::epsilon(double delta) const {
  check_delta(delta);
  return added_epsilon_ + truncated_epsilon(delta / mean_runs_);
}

double Accountant::delta(double epsilon) const {
  check_epsilon(epsilon);
  const double left = epsilon - added_epsilon_;
  if (left < 0) return 1;
  const double cut =
      truncation_probability_ == 0 ? 0 : (1 + std::exp(left)) * truncation_probability_;
  return std::min(mean_runs_ * (charged_delta(left) + cut), 1.0);
}

void Accountant::charge_selection(const SelectionCost& cost) {
  check(!has_selection(), "compose: a second private selection");
  check(cost.epsilon >= 0 && cost.runs > 1, "compose: a private selection of {} runs, epsilon {}",
        cost.runs, cost.epsilon);
  added_epsilon_ = cost.epsilon;
  mean_runs_ = cost.runs;
}

}  // namespace sotto
