// What a ledger says: which run released what, and the rules that hold within a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dp/event.h"

namespace sotto {

inline constexpr std::int64_t largest_reservation = 1 << 20;
inline constexpr std::uint64_t end_of_draws = std::uint64_t{1} << 62;

// What the numbers are about: the unit of privacy, in words for people, and the neighbours.
struct LedgerHeader {
  std::string unit = "one training example";
  NeighboringRelation relation = NeighboringRelation::add_or_remove_one;

  bool operator==(const LedgerHeader&) const = default;
};

// Adds `releases`, which may be negative where so many were counted before.
void add_releases(EventCounts& counts, const Event& event, std::int64_t releases);
std::int64_t total_releases(const EventCounts& counts);

// A ledger's releases, in the words of composition theorems (docs/accounting.md, section 4).
struct History {
  EventCounts events;
  // The most releases that the runs wrote down before any release; and whether that holds all that
  // was released.
  EventCounts plans = {};
  bool within_plans = true;
  // All is within the plans, but is no prefix of a sequence that they fix: which part of them was
  // released could have been chosen by looking.
  bool whole_plan = false;
  // Settings were written down after a release that they could have been chosen by: kinds of
  // releases differ, and not all are within the plans.
  bool adaptive = false;

  // The releases that epsilon is the cost of.
  const EventCounts& charged() const { return whole_plan ? plans : events; }
};

// Releases of one event that are paid for in advance, on draws numbered from `first_draw`.
struct Reservation {
  Event event;
  std::int64_t count = 0;
  std::uint64_t first_draw = 0;

  bool operator==(const Reservation&) const = default;
};

// What one run, a sampler with its mechanism across all interruptions, released.
struct LedgerRun {
  std::string id;
  EventCounts events;               // an open reservation counts whole
  std::uint64_t next_draw = 0;      // no draw from here on was used
  std::optional<Reservation> open;  // the last one, until it is settled
  // The last pass of each kind, by the event of its first batch: the draw that began it, and how
  // many more batches that one paid for.
  struct Pass {
    Event first;
    std::uint64_t draw = 0;
    std::int64_t left = 0;
    bool operator==(const Pass&) const = default;
  };
  std::vector<Pass> passes;
  EventCounts plan = {};  // at most, by what was written before any release of any run

  bool operator==(const LedgerRun&) const = default;

  // Throws std::invalid_argument unless 1 <= count <= largest_reservation, the draws are new and
  // below end_of_draws, first batches of passes come one at a time, and batches that were paid for
  // are no more than are left of the last pass.
  void reserve(const Reservation& next);
  // Closes the open reservation. Throws std::invalid_argument when there is none or the numbers are
  // not within it.
  void settle(std::int64_t used, std::uint64_t next_draw);
  // How many batches equal to `paid` the last pass of their kind has left. What an earlier pass did
  // not use is lost.
  std::int64_t payments_left(const Event& paid) const;
  // The pass that such a batch, paid or first, belongs to; nothing where none has begun.
  Pass* pass_of(Event event);
  const Pass* pass_of(Event event) const;
  // Returns whether the plan allows all that was released.
  bool within_plan() const;
  // Returns whether it was released in the plan's order, each kind of event before the next.
  bool prefix_of_plan() const;
};

struct LedgerContents {
  std::string id;  // of the ledger: 128 random bits
  LedgerHeader header;
  std::vector<LedgerRun> runs;       // in the order of their first lines
  std::vector<std::string> reasons;  // why the noise is not private; or none
  // Units in the data set, once a run has said so.
  std::optional<std::int64_t> population = {};

  // What a run says of the data set. Throws std::invalid_argument unless units >= 1 and all runs
  // say the same.
  void set_population(std::int64_t units);
  // The run called `id`, which is added if it is new.
  LedgerRun& run(const std::string& id);
  // Of all runs.
  EventCounts events() const;
  History history() const;
  // Returns whether at most one run has planned or released, and released a prefix of its plan.
  bool one_sequence() const;
  // Says what the run will release at most, instead of what it said before. Throws
  // std::invalid_argument when something was released, or the plan is none.
  void set_plan(LedgerRun& run, const EventCounts& most) const;
};

}  // namespace sotto
