// The record of what really ran, written ahead of every release: what the accountant composes.
// On disk a ledger is a text file that several runs on one data set may share; docs/accounting.md,
// section 4, describes it and argues that a crash can only make it count too much.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dp/ledger/open_ledger.h"

namespace sotto {

// A handle of one run's hold on a ledger, which lasts as long as there is a handle of it: copies
// are handles of the same run, and engines keep one. A handle that was moved from throws
// std::invalid_argument. Append-only. Any thread may call, and runs of their own, new_run(), may
// release at the same time. After fork() the child's copy throws.
class Ledger {
 public:
  // Whether releases may be made, given what all runs would then have released. Other runs wait for
  // the answer; a ledger that is written to for it throws.
  using BudgetCheck = OpenLedger::BudgetCheck;

  // In memory.
  explicit Ledger(LedgerHeader header = {});
  // A new file. Throws SystemFailure when there is one already. The file is written once for every
  // `block` >= 1 releases of one kind; a crash over-counts by at most that many.
  static Ledger create(const std::string& path, LedgerHeader header = {}, std::int64_t block = 16);
  // A new run on a file that was created before. Releases that other runs reserved and did not
  // settle count whole. Throws SystemFailure, naming file and line, when the file is not a ledger,
  // or was damaged other than by a crash in the middle of an append.
  static Ledger open(const std::string& path, std::int64_t block = 16);
  // Goes on with the run of a checkpoint. What was released after the checkpoint counts. Throws
  // SystemFailure, also, when the file is not the ledger that the mark is of, has not all that it
  // had then, or has other lines; and when another ledger continues the run.
  static Ledger resume(const std::string& path, const LedgerPosition& mark,
                       std::int64_t block = 16);
  // Another run on this ledger, in memory or open() of its file: one for each engine.
  Ledger new_run() const;

  // Counts one release of `event` on the sampler's draw number `draw`; call it before the release
  // leaves the mechanism. When the run has none in reserve, it reads what other runs added, and
  // reserves as many of a block as `budget_check` allows, no other run being able to spend in
  // between. Throws std::invalid_argument, with nothing counted, when it allows none; unless draw
  // >= next_draw() (below that, the batch may have been released already) and draw < 2^62; and for
  // a paid event that no earlier one of this run paid for. Throws SystemFailure when the file
  // cannot be written or is not what it was: then nothing may be released, now or later. For
  // batches in passes `place` says which of its pass it is: a paid one must belong to the last pass
  // of its kind that this run began, and come after those released before.
  void record(const Event& event, std::uint64_t draw, const BudgetCheck& budget_check = {},
              const std::optional<EpochPosition>& place = {});
  // Writes down how much of the open reservation was used; at a checkpoint, and when the last
  // handle goes.
  void settle();
  // Says how many units the data set has, of which sampling rates are; engines and mechanisms do.
  // Throws std::invalid_argument, with nothing written, unless units >= 1 and no run ever said
  // another number: runs on other data do not belong here.
  void set_population(std::int64_t units);
  // Says what this run will release at most, instead of what it said before; engines do. False,
  // and nothing is written, once any run has released something: what comes then could have been
  // chosen by looking at that (History::adaptive).
  bool plan(const EventCounts& most);
  // For noise or batches that are not secret (a seeded generator): no privacy is claimed from here
  // on, and never again for this file.
  void mark_not_private(const std::string& reason);
  // What a checkpoint needs to resume(): settles, and syncs the file. Throws std::invalid_argument
  // for a ledger in memory.
  LedgerPosition mark();
  // One engine at a time uses a run: throws std::invalid_argument while an earlier claim lives.
  std::shared_ptr<const void> claim();

  // The releases of all runs, with the others' reservations whole, and whether their settings were
  // planned. Up to date when the last reservation, settlement or mark was made.
  History history() const { return history_after({}); }
  // The history if this run released these, too.
  History history_after(const EventCounts& more) const;
  EventCounts events() const;
  std::int64_t releases() const { return total_releases(events()); }
  // Lines of other runs that were read so far: events() changed other than by record() when it
  // grew.
  std::int64_t lines_of_others() const;
  // Of this run.
  std::int64_t run_releases() const;
  // The smallest draw number that this run never used, across crashes too: a resumed sampler goes
  // on here.
  std::uint64_t next_draw() const;
  bool private_noise() const { return reasons().empty(); }
  std::vector<std::string> reasons() const;
  // Of the ledger and of this run, 128 random bits each.
  const std::string& id() const;
  const std::string& run_id() const;
  // Returns whether the run is that of a checkpoint.
  bool resumed() const;
  // As far as was read, like events(); nothing before a run said it.
  std::optional<std::int64_t> population() const;
  const LedgerHeader& header() const;

 private:
  // The open ledger, locked against other threads.
  class Locked;
  explicit Ledger(std::shared_ptr<OpenLedger> open) : open_(std::move(open)) {}
  Locked locked() const;

  std::shared_ptr<OpenLedger> open_;
};

}  // namespace sotto
