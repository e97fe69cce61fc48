#include "dp/ledger/ledger_contents.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace sotto {

void add_releases(EventCounts& counts, const Event& event, std::int64_t releases) {
  // Search from the back: the last kind recurs most often.
  const auto same = [&](const auto& entry) { return entry.first == event; };
  const auto found = std::find_if(counts.rbegin(), counts.rend(), same);
  if (found == counts.rend()) {
    if (releases != 0) counts.emplace_back(event, releases);
    return;
  }
  found->second += releases;
  if (found->second == 0) counts.erase(std::next(found).base());
}

std::int64_t total_releases(const EventCounts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& entry) { return sum + entry.second; });
}

namespace {

// Updates the last epoch of the reservation's kind.
void take_pass(LedgerRun& run, const Reservation& next) {
  LedgerRun::Epoch* const epoch = run.epoch_of(next.event);
  if (next.event.paid) {
    epoch->left -= next.count;
    return;
  }
  check(next.count == 1, "{} first batches of epochs in one reservation", next.count);
  const LedgerRun::Epoch begun{next.event, next.first_draw, next.event.batches - 1, next.epoch_id};
  if (epoch == nullptr) {
    run.epochs.push_back(begun);
  } else {
    *epoch = begun;
  }
}

}  // namespace

void LedgerRun::reserve(const Reservation& next) {
  check(next.count >= 1 && next.count <= max_reservation, "a reservation of {} releases",
        next.count);
  check(next.first_draw >= next_draw && next.first_draw < end_of_draws,
        "first_draw {} is not in [{}, {})", next.first_draw, next_draw, end_of_draws);
  if (next.event.paid) {
    check(next.count <= payments_left(next.event),
          "{} {} batches already charged with their epoch, of which {} are left", next.count,
          name(next.event.sampling), payments_left(next.event));
  }
  if (next.event.batches > 1) take_pass(*this, next);
  add_releases(events, next.event, next.count);
  next_draw = next.first_draw + static_cast<std::uint64_t>(next.count);
  open = next;
}

void LedgerRun::settle(std::int64_t used, std::uint64_t next_unused) {
  check(open.has_value(), "settles no reservation of its run");
  check(used >= 0 && used <= open->count, "{} releases of {} reserved", used, open->count);
  const std::uint64_t low = open->first_draw + static_cast<std::uint64_t>(used);
  check(next_unused >= low && next_unused <= next_draw, "next_draw {} is not in [{}, {}]",
        next_unused, low, next_draw);
  if (Epoch* const epoch = open->event.batches > 1 ? epoch_of(open->event) : nullptr) {
    if (open->event.paid) {
      epoch->left += open->count - used;
    } else if (used == 0) {
      epoch->left = 0;  // the epoch never began
    }
  }
  add_releases(events, open->event, used - open->count);
  next_draw = next_unused;
  open.reset();
}

const LedgerRun::Epoch* LedgerRun::epoch_of(Event event) const {
  event.paid = false;
  const auto found = std::find_if(epochs.begin(), epochs.end(),
                                  [&](const Epoch& epoch) { return epoch.first == event; });
  return found == epochs.end() ? nullptr : &*found;
}

LedgerRun::Epoch* LedgerRun::epoch_of(Event event) {
  return const_cast<Epoch*>(std::as_const(*this).epoch_of(event));
}

std::int64_t LedgerRun::payments_left(const Event& paid) const {
  const Epoch* const epoch = epoch_of(paid);
  return epoch == nullptr ? 0 : epoch->left;
}

void LedgerContents::set_population(std::int64_t units) {
  check(units >= 1, "a population of {}", units);
  check(population.value_or(units) == units,
        "a population of {}, where an earlier run said {}: one ledger is about one data set, of "
        "whose units the sampling rates are",
        units, population.value_or(0));
  population = units;
}

// Releases mostly follow the plan's order: search for the next kind behind the last one.
bool LedgerRun::within_plan() const {
  auto next = plan.begin();
  return std::ranges::all_of(events, [&](const auto& entry) {
    const auto planned = [&](const auto& kind) { return kind.first == entry.first; };
    next = std::find_if(next, plan.end(), planned);
    if (next == plan.end()) next = std::find_if(plan.begin(), plan.end(), planned);
    return next != plan.end() && entry.second <= next->second;
  });
}

// Paid batches are part of the first batch of their epoch, and skipped.
bool LedgerRun::prefix_of_plan() const {
  bool ended = false;
  for (const auto& [event, planned] : plan) {
    if (event.paid) continue;
    const auto found = std::ranges::find(events, event, &EventCounts::value_type::first);
    const std::int64_t released = found == events.end() ? 0 : found->second;
    if (ended && released > 0) return false;
    ended = ended || released < planned;
  }
  return within_plan();
}

void LedgerContents::set_plan(LedgerRun& run, const EventCounts& max) const {
  check(events().empty(), "a plan after {} releases", total_releases(events()));
  for (const auto& [event, count] : max)
    check(count >= 1 && count < std::int64_t{1} << 53, "a plan of {} releases", count);
  run.plan = max;
}

void LedgerContents::set_selection(LedgerRun& run, const PrivateSelection& selection) const {
  check(events().empty(),
        "a private selection after {} releases: it must be the first of its ledger",
        total_releases(events()));
  check(!selection.run.empty(), "a private selection whose runs release nothing");
  selection.runs.check_range("private selection");
  set_plan(run, selection.run);
  run.events = selection.run;
  run.selection = selection.runs;
}

LedgerRun& LedgerContents::run(const std::string& id) {
  const auto found =
      std::find_if(runs.rbegin(), runs.rend(), [&](const LedgerRun& run) { return run.id == id; });
  if (found != runs.rend()) return *found;
  runs.push_back({.id = id, .events = {}, .next_draw = 0, .open = {}, .epochs = {}});
  return runs.back();
}

EventCounts LedgerContents::events() const {
  EventCounts all;
  for (const LedgerRun& run : runs) {
    for (const auto& [event, releases] : run.events) add_releases(all, event, releases);
  }
  return all;
}

namespace {

// Returns whether all events are of one kind; all batches of an epoch count as one kind. They are
// then a fixed sequence, and only its length could have been chosen.
bool one_kind(const EventCounts& counts) {
  const auto kind = [](Event event) {
    event.paid = false;
    return event;
  };
  return std::ranges::all_of(
      counts, [&](const auto& entry) { return kind(entry.first) == kind(counts.front().first); });
}

}  // namespace

std::string LedgerContents::adoption_problem(const LedgerHeader& wanted) const {
  const std::int64_t releases = total_releases(events());
  if (releases > 0)
    return fmt::format("counts {} releases of a run whose state is missing: give another name",
                       releases);
  if (header == wanted && reasons.empty()) return "";
  return "is the ledger of other training: give another name";
}

bool LedgerContents::one_sequence() const {
  const auto used = [](const LedgerRun& run) { return !run.plan.empty() || !run.events.empty(); };
  return std::ranges::count_if(runs, used) <= 1 &&
         std::ranges::all_of(runs, &LedgerRun::prefix_of_plan);
}

History LedgerContents::history() const {
  History history{.events = events(),
                  .within_plans = std::ranges::all_of(runs, &LedgerRun::within_plan)};
  for (const LedgerRun& run : runs) {
    for (const auto& [event, count] : run.plan) add_releases(history.plans, event, count);
    if (run.selection) history.selection = {*run.selection, run.plan};
  }
  if (history.within_plans) {
    history.whole_plan = !history.events.empty() && !one_kind(history.plans) && !one_sequence();
  } else {
    history.adaptive = !one_kind(history.events);
  }
  return history;
}

}  // namespace sotto
