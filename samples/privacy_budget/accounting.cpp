#include "samples/privacy_budget/accounting.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "core/error.h"
#include "core/io/atomic_file.h"
#include "dp/accounting/accountant.h"
#include "dp/accounting/calibration.h"
#include "dp/accounting/gdp.h"
#include "dp/accounting/make_accountant.h"
#include "dp/accounting/pld/pld_accountant.h"
#include "dp/accounting/selection_cost.h"
#include "dp/accounting/truncation.h"
#include "dp/ledger/ledger_text.h"

namespace sotto::budget {

namespace {

constexpr std::array<const char*, 4> method_names = {"pld", "rdp", "gdp", "prv"};

// The library's kind of accountant; not for gdp.
AccountantKind kind_of(Method method) { return parse_accountant(name(method)); }

AccountantFactory maker(Method method, NeighboringRelation relation) {
  return accountant_factory(kind_of(method), relation);
}

std::unique_ptr<Accountant> composed(Method method, NeighboringRelation relation,
                                     const History& history,
                                     const std::optional<PrivateSelection>& selection = {}) {
  auto accountant = accountant_for({.selection = selection}, maker(method, relation));
  for (const auto& [event, count] : history) accountant->compose(event, count);
  return accountant;
}

// The limit for releases of one kind. Replacing a record moves the sum twice as far as adding or
// removing one.
double gdp_mu(NeighboringRelation relation, const Event& event, std::int64_t count) {
  const double noise =
      event.noise_multiplier / (relation == NeighboringRelation::replace_one ? 2 : 1);
  switch (event.sampling) {
    case Sampling::full_batch: return std::sqrt(static_cast<double>(count)) / noise;
    case Sampling::poisson:
      check(relation == NeighboringRelation::add_or_remove_one, "gdp: no limit is known");
      return gdp_poisson(event.sampling_rate, noise, count);
    case Sampling::fixed_size:
      check(relation == NeighboringRelation::replace_one, "gdp: no limit is known");
      return gdp_fixed_size(event.sampling_rate, noise, count);
    default: fail("gdp: no limit is known");
  }
}

double gdp_mu(NeighboringRelation relation, const History& history) {
  double mu = 0;
  for (const auto& [event, count] : history) mu = std::hypot(mu, gdp_mu(relation, event, count));
  return mu;
}

}  // namespace

const char* name(Method method) { return method_names.at(static_cast<std::size_t>(method)); }

History releases_of(const Phase& phase) {
  const std::int64_t batches = phase.event.batches;
  const std::int64_t passes = (phase.steps + batches - 1) / batches;
  History history = {{phase.event, passes}};
  if (phase.steps > passes) {
    Event paid = phase.event;
    paid.paid = true;
    history.emplace_back(paid, phase.steps - passes);
  }
  return history;
}

std::string refusal(Method method, NeighboringRelation relation, const Event& event) {
  if (method != Method::gdp) return unsupported_reason(kind_of(method), event.sampling, relation);
  try {
    gdp_mu(relation, event, 1);
    return "";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

std::string refusal(Method method, NeighboringRelation relation, const History& history) {
  for (const auto& [event, count] : history) {
    std::string reason = refusal(method, relation, event);
    if (!reason.empty()) return reason;
  }
  return "";
}

Method choose_method(const std::optional<Method>& wanted, NeighboringRelation relation,
                     const History& history) {
  if (wanted) {
    const std::string reason = refusal(*wanted, relation, history);
    check(reason.empty(), "--accountant {}: {}", name(*wanted), reason);
    return *wanted;
  }
  for (const Method method : {Method::pld, Method::rdp}) {
    if (refusal(method, relation, history).empty()) return method;
  }
  fail(fmt::format("--relation {}: {}", name(relation), refusal(Method::pld, relation, history)));
}

Bounds epsilon(Method method, NeighboringRelation relation, const History& history, double delta,
               const std::optional<PrivateSelection>& selection) {
  check(method != Method::gdp || !selection, "gdp: no limit is known of a private selection");
  if (method == Method::gdp) return {gdp_epsilon(gdp_mu(relation, history), delta)};
  const auto accountant = composed(method, relation, history, selection);
  if (const auto* const pld = dynamic_cast<const PldAccountant*>(accountant.get())) {
    return {pld->epsilon(delta), pld->epsilon(delta, Bound::lower)};
  }
  return {accountant->epsilon(delta)};
}

Bounds delta(Method method, NeighboringRelation relation, const History& history, double epsilon,
             const std::optional<PrivateSelection>& selection) {
  check(method != Method::gdp || !selection, "gdp: no limit is known of a private selection");
  if (method == Method::gdp) return {gdp_delta(gdp_mu(relation, history), epsilon)};
  const auto accountant = composed(method, relation, history, selection);
  if (const auto* const pld = dynamic_cast<const PldAccountant*>(accountant.get())) {
    return {pld->delta(epsilon), pld->delta(epsilon, Bound::lower)};
  }
  return {accountant->delta(epsilon)};
}

Bounds adaptive_epsilon(NeighboringRelation relation, const History& plans, const History& history,
                        double delta, const std::optional<PrivateSelection>& selection) {
  const auto accountant = accountant_for({.plans = plans, .adaptive = true, .selection = selection},
                                         accountant_factory(AccountantKind::pld, relation));
  for (const auto& [event, count] : history) accountant->compose(event, count);
  return {accountant->epsilon(delta)};
}

double min_noise(Method method, NeighboringRelation relation, const Phase& phase,
                 const Target& target) {
  return calibrate_noise_multiplier({target.epsilon, target.delta, phase.event, phase.steps},
                                    maker(method, relation));
}

std::int64_t max_steps(Method method, NeighboringRelation relation, const Phase& phase,
                       const Target& target) {
  return max_steps(phase.event.noise_multiplier, {target.epsilon, target.delta, phase.event},
                   maker(method, relation));
}

double max_rate(Method method, NeighboringRelation relation, const Phase& phase,
                const Target& target) {
  return max_sampling_rate(phase.event.noise_multiplier,
                           {target.epsilon, target.delta, phase.event, phase.steps},
                           maker(method, relation));
}

std::int64_t max_batch_size(Method method, NeighboringRelation relation, const Phase& phase,
                            const Target& target) {
  const auto allowed = [&](std::int64_t batch) {
    Phase tried = phase;
    tried.event.batches = batches_of_epoch(phase.population.value(), static_cast<double>(batch));
    const History history = releases_of(tried);
    return epsilon(method, relation, history, target.delta).upper <= target.epsilon;
  };
  std::int64_t low = 0, high = phase.population.value() + 1;
  while (high - low > 1) {
    const std::int64_t middle = std::midpoint(low, high);
    (allowed(middle) ? low : high) = middle;
  }
  return low;
}

std::string truncation_refusal(const Phase& phase, const Target& target) {
  const bool rate_is_known = phase.steps_per_epoch > 0;
  return truncation_problem(rate_is_known ? phase.population : std::nullopt,
                            {target.epsilon, target.delta, phase.event, phase.steps});
}

std::string truncation_refusal(Method method, NeighboringRelation relation,
                               const std::vector<Phase>& phases, double delta) {
  History whole;
  for (Phase phase : phases) {
    phase.event.truncation_probability = 0;
    for (const auto& releases : releases_of(phase)) whole.push_back(releases);
  }
  const auto without_cut = composed(method, relation, whole);
  for (const Phase& phase : phases) {
    std::string problem = truncation_problem(
        phase.population, {.delta = delta, .batch = phase.event, .steps = phase.steps},
        *without_cut);
    if (!problem.empty()) return problem;
  }
  return "";
}

LedgerFacts facts_of(const LedgerContents& ledger) {
  const sotto::History history = ledger.history();
  return {.unit = ledger.header.unit,
          .relation = ledger.header.relation,
          .history = history.events,
          .reasons = ledger.reasons,
          .population = ledger.population,
          .adaptive = history.adaptive,
          .whole_plan = history.whole_plan,
          .plans = history.plans,
          .selection = history.selection};
}

double epsilon(const LedgerFacts& ledger, NeighboringRelation relation, double delta) {
  if (!ledger.reasons.empty()) return std::numeric_limits<double>::infinity();
  if (ledger.adaptive)
    return adaptive_epsilon(relation, ledger.plans, ledger.history, delta, ledger.selection).upper;
  const History& charged = ledger.whole_plan ? ledger.plans : ledger.history;
  return epsilon(choose_method({}, relation, charged), relation, charged, delta, ledger.selection)
      .upper;
}

LedgerFacts read_ledger(const char* option, const std::string& path) {
  try {
    return facts_of(parse_ledger(read_file(path), path).contents);
  } catch (const SystemFailure& error) {
    throw SystemFailure(fmt::format("{}: {}", option, error.what()));
  }
}

}  // namespace sotto::budget
