// The privacy that a training has spent, by its ledger or by a description.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "core/error.h"
#include "dp/numerics/directed_rounding.h"
#include "samples/privacy_budget/commands.h"
#include "samples/report/charts.h"

namespace sotto::budget {

namespace {

// The releases, in order, and why they are not private, if they are not.
struct Training {
  History history;
  std::vector<std::string> reasons;
  NeighboringRelation relation;
  std::optional<std::int64_t> population;
  // As in sotto::History.
  bool adaptive = false, whole_plan = false;
  History plans = {};
  std::optional<PrivateSelection> selection = {};
  std::function<History(std::int64_t steps, double noise)> first;
  std::vector<Phase> phases{};  // if the training was described

  const History& charged() const { return whole_plan ? plans : history; }
};

std::int64_t count_of(const History& history) {
  std::int64_t sum = 0;
  for (const auto& [event, count] : history) sum += count;
  return sum;
}

// Releases of one kind: the charged ones, and those charged with the first batch of their epoch.
struct Kind {
  Event event;
  std::int64_t charged = 0, paid = 0;
};

std::vector<Kind> by_kind(const History& history) {
  std::vector<Kind> kinds;
  for (const auto& [event, count] : history) {
    Event first = event;
    first.paid = false;
    const auto known = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const Kind& kind) { return kind.event == first; });
    Kind& kind = known == kinds.end() ? kinds.emplace_back(Kind{first}) : *known;
    (event.paid ? kind.paid : kind.charged) += count;
  }
  return kinds;
}

// The first `steps` releases, kind by kind, with first and later batches of epochs in proportion.
History truncated(const std::vector<Kind>& kinds, std::int64_t steps, double noise) {
  History first;
  for (const auto& [event, charged, paid] : kinds) {
    const std::int64_t all = charged + paid, some = std::min(all, steps);
    const double share = static_cast<double>(some) / static_cast<double>(all);
    const auto later = static_cast<std::int64_t>(share * static_cast<double>(paid));
    const std::int64_t passes = std::min(charged, some - later);
    Event release = event;
    release.noise_multiplier *= noise;
    if (passes > 0) first.emplace_back(release, passes);
    release.paid = true;
    if (some > passes) first.emplace_back(release, some - passes);
    steps -= some;
  }
  return first;
}

Training ledger_training(const Options& options, Answer& answer) {
  const LedgerFacts ledger = read_ledger("--ledger", options.ledger);
  Training training{.history = ledger.history,
                    .reasons = ledger.reasons,
                    .relation = options.relation.value_or(ledger.relation),
                    .population = ledger.population,
                    .adaptive = ledger.adaptive,
                    .whole_plan = ledger.whole_plan,
                    .plans = ledger.plans,
                    .selection = ledger.selection};
  training.first = [kinds = by_kind(ledger.history)](std::int64_t steps, double noise) {
    return truncated(kinds, steps, noise);
  };
  answer.facts = {{"ledger", options.ledger}, {"unit", ledger.unit}};
  answer.json["ledger"] = options.ledger;
  answer.json["unit"] = ledger.unit;
  if (ledger.population) {
    answer.facts.emplace_back("population", std::to_string(*ledger.population));
    answer.json["population"] = *ledger.population;
  }
  answer.notes.emplace_back("reservations of a running or crashed training count in full");
  if (ledger.selection) {
    const double runs = ledger.selection->runs.mean();
    answer.json["selection_mean_runs"] = runs;
    answer.notes.push_back(fmt::format(
        "the best of a random number of runs, {:.4g} in the mean, was selected in private: the "
        "releases are those of one run, and epsilon is that of the selection",
        runs));
  }
  return training;
}

Training described_training(const Options& options) {
  std::vector<Phase> phases;
  for (const PhaseOptions& phase : options.phases) phases.push_back(make_phase(phase));
  std::int64_t steps = 0;
  for (const Phase& phase : phases) steps += phase.steps;
  Training training{.history = first_steps(phases, steps, 1),
                    .relation = options.relation.value_or(NeighboringRelation::add_or_remove_one),
                    .population = phases.front().population,
                    .phases = phases};
  training.first = [phases](std::int64_t first, double noise) {
    return first_steps(phases, first, noise);
  };
  return training;
}

void tell_releases(const Training& training, Answer& answer) {
  Table table{
      .caption = "Releases", .named = true, .head = {"sampling", "noise multiplier", "count"}};
  answer.json["releases"] = nlohmann::ordered_json::array();
  for (const auto& [event, charged, paid] : by_kind(training.history)) {
    const std::int64_t count = charged + paid;
    table.rows.push_back({description(event), noise_text(event.noise_multiplier), grouped(count)});
    auto json = nlohmann::ordered_json::parse(to_json(event));
    json["count"] = count;
    answer.json["releases"].push_back(std::move(json));
  }
  answer.tables.push_back(std::move(table));
  if (training.history.empty()) answer.notes.emplace_back("nothing was released");
}

void tell_reasons(const Training& training, Answer& answer) {
  answer.alarms = training.reasons;
  for (const auto& [event, charged, paid] : by_kind(training.history)) {
    if (event.noise_multiplier > 0) continue;
    answer.alarms.push_back(fmt::format("{} releases without noise", grouped(charged + paid)));
  }
  answer.json["private"] = answer.alarms.empty();
  answer.json["reasons"] = answer.alarms;
}

// The answers to one question for several values: a table, and an array in the JSON.
class Questions {
 public:
  Questions(const char* given, const char* wanted, Answer& answer)
      : given_(given),
        wanted_(wanted),
        answer_(answer),
        table_{.head = {given, fmt::format("{} at most", wanted), "and at least"}} {}

  void ask(double value, const Bounds& bounds) {
    table_.rows.push_back(
        {shown(value), rounded_up(bounds.upper), bounds.lower ? rounded_down(*bounds.lower) : "–"});
    nlohmann::ordered_json json = {{given_, value}};
    put_bounds(wanted_, bounds, json);
    answer_.json["answers"].push_back(std::move(json));
  }
  void finish() {
    if (!table_.rows.empty()) answer_.tables.push_back(table_);
  }

 private:
  const char *given_, *wanted_;
  Answer& answer_;
  Table table_;
};

// Refuses a described training whose truncation leaves no finite epsilon; a ledger records facts.
void check_cut(Method method, const Training& training, double delta, const Bounds& found) {
  if (std::isfinite(found.upper)) return;
  const std::string problem = truncation_refusal(method, training.relation, training.phases, delta);
  check(problem.empty(), "--max-batch-size, --truncation-probability: {}", problem);
}

void tell_answers(const Options& options, Method method, const Training& training, Answer& answer,
                  Progress& progress) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  progress.begin("epsilon and delta",
                 static_cast<int>(options.deltas.size() + options.epsilons.size()));
  Questions epsilons("delta", "epsilon", answer), deltas("epsilon", "delta", answer);
  const bool secret = training.reasons.empty();
  const EventCounts& history = training.charged();
  const NeighboringRelation relation = training.relation;
  const auto spent = [&](double value) {
    return training.adaptive
               ? adaptive_epsilon(relation, training.plans, history, value, training.selection)
               : epsilon(method, relation, history, value, training.selection);
  };
  const auto lost = [&](double value) {
    return delta(method, relation, history, value, training.selection);
  };
  for (const double value : options.deltas) {
    const Bounds found = secret ? spent(value) : Bounds{infinity};
    check_cut(method, training, value, found);
    epsilons.ask(value, found);
    note_delta(value, training.population, answer);
    progress.advance();
  }
  for (const double value : options.epsilons) {
    deltas.ask(value, secret ? lost(value) : Bounds{1});
    progress.advance();
  }
  epsilons.finish();
  deltas.finish();
}

// Chooses the accounting method. If settings could have been chosen by looking at releases, only
// RDP has a proof.
Method method_of(const Options& options, const Training& training, Answer& answer) {
  answer.json["adaptive"] = training.adaptive;
  if (training.whole_plan)
    answer.notes.emplace_back(
        "planned: the answer is that of the whole plan, because which part of it was released "
        "could have been chosen by looking");
  if (!training.adaptive)
    return choose_method(options.accountant, training.relation, training.charged());
  check(options.epsilons.empty(),
        "--epsilon: the ledger's settings could have been chosen by looking at its releases, for "
        "which an epsilon is proved for a delta that was fixed in advance, and not the reverse");
  check(options.accountant.value_or(Method::rdp) == Method::rdp,
        "--accountant {}: the ledger's settings could have been chosen by looking at its releases, "
        "for which only rdp has a proof",
        name(options.accountant.value_or(Method::rdp)));
  answer.notes.emplace_back(
      "adaptive: settings could have been chosen by looking at releases; the answer holds for any "
      "such choice");
  return choose_method(Method::rdp, training.relation, training.history);
}

}  // namespace

Answer answer_spent(const Options& options, Progress& progress) {
  Answer answer{.title = "Privacy spent"};
  answer.json["command"] = "spent";
  const Training training =
      options.ledger.empty() ? described_training(options) : ledger_training(options, answer);
  const Method method = method_of(options, training, answer);
  tell_method(method, training.relation, options, answer);
  if (training.adaptive) answer.facts.back().second = "rdp, of orders fixed in advance";
  tell_reasons(training, answer);
  tell_releases(training, answer);
  tell_answers(options, method, training, answer, progress);
  if (options.html.empty() || !answer.alarms.empty() || options.deltas.empty() ||
      training.adaptive || training.whole_plan || training.selection)
    return answer;
  const std::vector<Kind> kinds = by_kind(training.history);
  const bool one_kind = kinds.size() == 1;
  answer.charts = privacy_curves({.series = {{.name = name(method),
                                              .method = method,
                                              .relation = training.relation,
                                              .history = training.first}},
                                  .steps = count_of(training.history),
                                  .noise = one_kind ? kinds.front().event.noise_multiplier : 1,
                                  .relative_noise = !one_kind,
                                  .delta = options.deltas.front()},
                                 progress);
  return answer;
}

}  // namespace sotto::budget
