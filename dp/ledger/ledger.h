// The privacy ledger: a write-ahead record of every release, which the accountant composes. On disk
// it is a text file that several runs on one data set may share. docs/appendix/ledger-format.md
// describes it, and docs/appendix/proofs-accounting.md, section 4, argues that a crash can only
// make it count too much.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dp/ledger/ledger_contents.h"
#include "dp/ledger/ledger_position.h"

namespace sotto {
class Ranks;
}  // namespace sotto

namespace sotto {

class OpenLedger;

// A handle of one run on a ledger. Create one for each data set and give it to the Engine, or
// record releases yourself. Copies are handles of the same run, which lasts as long as one of them.
// The ledger is append-only. Any thread may call, and runs of their own, from new_run(), may
// release at the same time. A handle that was moved from throws std::invalid_argument, and so does
// the child's copy after fork().
//
//   Ledger ledger = Ledger::create("train.ledger", {.unit = "one patient"});
//   const double spent = epsilon(ledger, 1e-5);
class Ledger {
 public:
  // Returns true if releases may be made, given the history that all runs would then have. Other
  // runs wait for the answer. Writing to the ledger during a check throws std::invalid_argument.
  using BudgetCheck = std::function<bool(const History& after)>;

  explicit Ledger(LedgerHeader header = {});
  // Creates a file. Throws SystemFailure when it exists already. The file is written once for every
  // `block` >= 1 releases of one kind; a crash over-counts by that many at most.
  static Ledger create(const std::string& path, LedgerHeader header = {}, std::int64_t block = 16);
  // Begins a new run on an existing file. Releases that other runs reserved and did not settle
  // count in full. Throws SystemFailure, with file and line, when the file is not a ledger, or was
  // damaged other than by a crash in the middle of an append.
  static Ledger open(const std::string& path, std::int64_t block = 16);
  // Begins the first run on a file that an earlier one left without a release. Throws
  // std::invalid_argument, decided under the lock for appending, if the ledger counts something,
  // has another header, is not private, or has a run that is open, here or in another process; and
  // the errors of open().
  static Ledger adopt(const std::string& path, const LedgerHeader& header, std::int64_t block = 16);
  // Continues the run of a training checkpoint; releases made after the checkpoint count. Throws
  // the errors of open(), and SystemFailure when the file is not the ledger of the mark, has lost
  // or changed lines that it had then, or when another ledger continues the run.
  static Ledger resume(const std::string& path, const LedgerPosition& mark,
                       std::int64_t block = 16);
  // The ledger of a distributed run. Only rank 0 calls `open` and holds the ledger:
  //
  //   Ledger::on_rank_0(ranks, [] { return Ledger::create("train.ledger"); });
  //
  // Every other rank gets a handle with header(), id(), run_id(), resumed(), population(),
  // record(), settle(), claim() and set_population(); any further member throws
  // std::invalid_argument. This call and record() are collective: record() returns on every rank
  // when rank 0 has recorded the release. An error of rank 0 is thrown on every rank. If `ranks` is
  // null, returns open().
  static Ledger on_rank_0(std::shared_ptr<Ranks> ranks, const std::function<Ledger()>& open);
  // False on the other ranks of a distributed run than 0.
  bool here() const { return !remote_; }
  // The ranks of a distributed run; null for an ordinary ledger.
  const std::shared_ptr<Ranks>& ranks() const { return ranks_; }
  // The ledger, in memory, of one run of a private selection: it refuses plans and releases beyond
  // selection.run (select_privately).
  static Ledger of_candidate(LedgerHeader header, const PrivateSelection& selection);
  // Begins another run on this ledger, in memory or by open() of its file. Each engine needs one.
  Ledger new_run() const;

  // Counts one release of `event` on the sampler's draw number `draw`; call it before the release
  // leaves the mechanism. If the run has no reserved release left, record() reads the lines that
  // other runs added, and reserves as many releases of a block as `budget_check` allows; other runs
  // cannot spend in between. For batches of epochs, `position` is the batch's position in its
  // epoch. A paid batch must belong to the last epoch of its kind that this run began, by its first
  // draw and its id, and follow the batches released before.
  //
  // Throws std::invalid_argument, before counting, if `budget_check` allows no release, unless
  // next_draw() <= draw < 2^62 (an earlier draw may have been released already), and for a later
  // batch of an epoch whose first batch this run has not charged. Throws SystemFailure if the file
  // cannot be written or was cut, edited or replaced: then no release may be made, now or later. If
  // the file was changed and this run has made a release, its copy of the lines is saved beside the
  // file as FILE.rescue, or FILE.rescue.2 and so on.
  void record(const Event& event, std::uint64_t draw, const BudgetCheck& budget_check = {},
              const std::optional<EpochPosition>& position = {});
  // Writes the number of releases made of the open reservation, so that the rest does not count.
  // position() and the destructor of the last handle call it.
  void settle();
  // Declares the number of units in the data set, to which sampling rates refer; engines and
  // mechanisms call it. Throws std::invalid_argument, before writing, unless units >= 1 and every
  // run declared this number: a run on another data set needs a ledger of its own.
  void set_population(std::int64_t units);
  // Declares the maximum that this run will release, instead of an earlier declaration; engines
  // call it. Returns false without writing once any run has made a release: a plan made then may
  // depend on releases (History::adaptive).
  bool plan(const EventCounts& max);
  // Charges a private selection, before its first run; select_privately() calls it. Throws
  // std::invalid_argument, before writing, if any run has made a release, on several ranks, and for
  // numbers that are out of range.
  void select(const PrivateSelection& selection);
  // Records that noise or batches are not secret (a seeded generator): from here on this file can
  // never again prove privacy.
  void mark_not_private(const std::string& reason);
  // Settles, syncs the file, and returns the position that a training checkpoint needs for
  // resume(). Throws std::invalid_argument for a ledger in memory.
  LedgerPosition position();
  // Claims the run for one engine. Throws std::invalid_argument while an earlier claim is held.
  std::shared_ptr<const void> claim();

  // The releases of all runs, with other runs' reservations in full, and whether their settings
  // were planned. Up to date as of the last reservation, settle() or
  // position().
  History history() const { return history_after({}); }
  // The history if this run released `more` as well.
  History history_after(const EventCounts& more) const;
  // The releases of all runs, by event; as history().
  EventCounts events() const;
  std::int64_t releases() const { return total_releases(events()); }
  // The number of other runs' lines read so far. If it grew, events() changed by other runs, not
  // only by record().
  std::int64_t lines_of_others() const;
  // The number of releases of this run.
  std::int64_t run_releases() const;
  // The smallest draw number that this run never used, crashes included: a resumed sampler
  // continues here.
  std::uint64_t next_draw() const;
  // True unless mark_not_private() was called by any run; reasons() lists its arguments.
  bool private_noise() const { return reasons().empty(); }
  // The reasons for which noise is not private; empty if it is.
  std::vector<std::string> reasons() const;
  // The ids of the ledger and of this run, 128 random bits each.
  const std::string& id() const;
  const std::string& run_id() const;  // of this run, as in its lines
  // True if the run was continued from a training checkpoint by resume().
  bool resumed() const;
  // The declared number of units, as far as was read; nullopt before a run declared it.
  std::optional<std::int64_t> population() const;
  // The private selection, if this is the ledger of one of its runs (of_candidate); else nullopt.
  // Publishing this run's result is charged as the whole selection.
  std::optional<PrivateSelection> selection_of_run() const;
  // Unit and relation, as when the ledger was made.
  const LedgerHeader& header() const;

 private:
  // Access to the open ledger, locked against other threads.
  class Locked;
  explicit Ledger(std::shared_ptr<OpenLedger> open) : open_(std::move(open)) {}
  struct Remote;
  Locked locked() const;

  std::shared_ptr<OpenLedger> open_;  // null on ranks other than 0
  std::shared_ptr<Remote> remote_;    // there
  std::shared_ptr<Ranks> ranks_;
};

}  // namespace sotto
