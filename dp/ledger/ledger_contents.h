// The contents of a ledger: the releases of each run, and the rules that hold within a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dp/event.h"
#include "dp/numerics/truncated_negative_binomial.h"

namespace sotto {

// The most releases that one line may reserve.
inline constexpr std::int64_t max_reservation = 1 << 20;
inline constexpr std::uint64_t end_of_draws = std::uint64_t{1} << 62;  // draws have smaller numbers

// The meaning of the numbers: the privacy unit, in words for people, and the neighbouring relation.
struct LedgerHeader {
  std::string unit = "one training example";                              // in words
  NeighboringRelation relation = NeighboringRelation::add_or_remove_one;  // of data sets

  bool operator==(const LedgerHeader&) const = default;
};

// Adds `releases`; a negative number removes releases counted before.
void add_releases(EventCounts& counts, const Event& event, std::int64_t releases);
// The number of releases of all kinds.
std::int64_t total_releases(const EventCounts& counts);

// A private selection: the best of a random number of runs, chosen in secret, is released
// (select_privately). No other result of the runs is published.
struct PrivateSelection {
  TruncatedNegativeBinomial runs = {};  // distribution of their number
  EventCounts run = {};                 // the maximum releases of one run

  bool operator==(const PrivateSelection&) const = default;
};

// A ledger's releases, in the terms of composition theorems (docs/appendix/proofs-accounting.md,
// section 4).
struct History {
  EventCounts events;  // releases of all runs
  // The maximum releases that the runs wrote down before any release, and whether every release is
  // within them.
  EventCounts plans = {};
  bool within_plans = true;  // true if no run left its plan
  // All releases are within the plans, but they are not a prefix of a sequence that the plans fix:
  // which part of the plans was released could have been chosen by looking.
  bool whole_plan = false;
  // True if settings were recorded after a release and so may depend on it: the releases are of
  // different kinds, and not all are within the plans.
  bool adaptive = false;
  // The selection that the ledger begins with, if it does: `events` and `plans` contain one of its
  // runs, and a SelectionCost comes on top of their composition.
  std::optional<PrivateSelection> selection = {};

  const EventCounts& charged() const { return whole_plan ? plans : events; }
};

// Releases of one event that are charged in advance, on draws numbered from `first_draw`.
struct Reservation {
  Event event;                   // the event of each
  std::int64_t count = 0;        // number of releases
  std::uint64_t first_draw = 0;  // number of the first draw
  std::uint64_t epoch_id = 0;    // EpochPosition::epoch_id of an epoch's first batch; 0: none

  bool operator==(const Reservation&) const = default;
};

struct EpochPosition {
  std::uint64_t began = 0;          // number of the draw that began the epoch
  std::int64_t index_in_epoch = 0;  // batches before it in its epoch
  std::uint64_t epoch_id = 0;       // SampledBatch::epoch_id()
};

// The releases of one run: a sampler with its mechanism, across all interruptions.
struct LedgerRun {
  std::string id;                   // 128 random bits, in hexadecimal digits
  EventCounts events;               // an open reservation counts in full
  std::uint64_t next_draw = 0;      // no draw from here on was used
  std::optional<Reservation> open;  // the last one, until it is settled
  // The last epoch of a kind, by the event of its first batch: the draw that began it, the
  // number of its batches that are charged and not yet released, and its id.
  struct Epoch {
    Event first;             // of the first batch
    std::uint64_t draw = 0;  // that began it
    std::int64_t left = 0;   // charged and not yet released
    std::uint64_t id = 0;    // EpochPosition::epoch_id
    bool operator==(const Epoch&) const = default;
  };
  std::vector<Epoch> epochs;  // one for each kind
  EventCounts plan = {};      // maximum releases, written before any release of any run
  // The number of runs of the private selection; `plan` and `events` are those of one run.
  std::optional<TruncatedNegativeBinomial> selection = {};

  bool operator==(const LedgerRun&) const = default;

  // Throws std::invalid_argument unless 1 <= count <= max_reservation, the draws are new and
  // below end_of_draws, first batches of epochs come one at a time, and paid batches do not exceed
  // those left of the last epoch.
  void reserve(const Reservation& next);
  // Closes the open reservation. Throws std::invalid_argument when there is none, or the numbers
  // are outside it.
  void settle(std::int64_t used, std::uint64_t next_draw);
  // The number of batches equal to `paid` that the last epoch of their kind has left. Batches that
  // an earlier epoch did not use are forfeited.
  std::int64_t payments_left(const Event& paid) const;
  // The epoch that such a batch, paid or first, belongs to; null if none has begun.
  Epoch* epoch_of(Event event);
  const Epoch* epoch_of(Event event) const;
  // Returns whether the plan allows every release.
  bool within_plan() const;
  // Returns whether releases were made in the plan's order, each kind of event before the next.
  bool prefix_of_plan() const;
};

// The contents of a ledger, as its lines say.
struct LedgerContents {
  std::string id;                    // of the ledger: 128 random bits
  LedgerHeader header;               // of the file
  std::vector<LedgerRun> runs;       // in the order of their first lines
  std::vector<std::string> reasons;  // why the noise is not private; empty if it is
  // The number of units in the data set, once a run has declared it.
  std::optional<std::int64_t> population = {};

  // Declares the data set's size. Throws std::invalid_argument unless units >= 1 and all runs
  // declare the same size.
  void set_population(std::int64_t units);
  // The run with this id, which is added if it is new.
  LedgerRun& run(const std::string& id);
  EventCounts events() const;
  // The releases of all runs, and whether they were planned.
  History history() const;
  // The reason why Ledger::adopt() must refuse this ledger: "counts 2 releases of ..."; empty if it
  // has no release and the header is this one.
  std::string adoption_problem(const LedgerHeader& wanted) const;
  // Returns whether at most one run has planned or released, and released a prefix of its plan.
  bool one_sequence() const;
  // Declares the maximum that the run will release, instead of an earlier declaration. Throws
  // std::invalid_argument when something was released, or the plan is empty.
  void set_plan(LedgerRun& run, const EventCounts& max) const;
  // Charges a private selection to the run. Throws std::invalid_argument unless it is the first
  // release of the ledger: there is no bound for a selection that depends on earlier releases.
  void set_selection(LedgerRun& run, const PrivateSelection& selection) const;
};

}  // namespace sotto
