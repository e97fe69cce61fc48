// The record of what really ran, written ahead of every release: what the accountant composes.
// On disk a ledger is a text file that several runs on one data set may share; docs/accounting.md,
// section 4, describes it and argues that a crash can only make it count too much.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sotto/dp/event.h"
#include "sotto/dp/ledger_contents.h"
#include "sotto/dp/ledger_file.h"
#include "sotto/dp/ledger_mark.h"
#include "sotto/dp/ledger_text.h"

namespace sotto {

// Where a draw is in its pass: the number of the draw that began it, and the place from 0.
struct PassPlace {
  std::uint64_t began = 0;
  std::int64_t place = 0;
};

// One run's hold on a ledger. Append-only and movable. One thread at a time; other threads and
// processes open the file for themselves. After fork() the child's copy throws.
class Ledger {
 public:
  // Whether releases may be made, given what all runs would then have released. Other runs wait for
  // the answer; a ledger that is written to for it throws.
  using Admit = std::function<bool(const EventCounts& after)>;

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
  static Ledger resume(const std::string& path, const LedgerMark& mark, std::int64_t block = 16);
  ~Ledger();
  Ledger(Ledger&&) noexcept;
  Ledger& operator=(Ledger&&) = delete;

  // Counts one release of `event` on the sampler's draw number `draw`; call it before the release
  // leaves the mechanism. When the run has none in reserve, it reads what other runs added, and
  // reserves as many of a block as `admit` allows, no other run being able to spend in between.
  // Throws std::invalid_argument, with nothing counted, when it allows none; unless draw >=
  // next_draw() (below that, the batch may have been released already) and draw < 2^62; and for a
  // paid event that no earlier one of this run paid for. Throws SystemFailure when the file cannot
  // be written or is not what it was: then nothing may be released, now or later.
  // For batches in passes `place` says which of its pass it is: a paid one must belong to the last
  // pass of its kind that this run began, and come after those released before.
  void record(const Event& event, std::uint64_t draw, const Admit& admit = {},
              const std::optional<PassPlace>& place = {});
  // Writes down how much of the open reservation was used; at a checkpoint, and by the destructor.
  void settle();
  // Says how many units the data set has, of which sampling rates are; engines do. Throws
  // std::invalid_argument, with nothing written, unless units >= 1 and no run ever said another
  // number: runs on other data do not belong here.
  void set_population(std::int64_t units);
  // For noise or batches that are not secret (a seeded generator): no privacy is claimed from here
  // on, and never again for this file.
  void mark_not_private(const std::string& reason);
  // What a checkpoint needs to resume(): settles, and syncs the file. Throws std::invalid_argument
  // for a ledger in memory.
  LedgerMark mark();

  // What was released by all runs, reservations of the others whole. Up to date when the last
  // reservation, settlement or mark was made.
  EventCounts events() const;
  std::int64_t releases() const { return total_releases(events()); }
  // Lines of other runs that were read so far: events() changed other than by record() when it
  // grew.
  std::int64_t lines_of_others() const { return lines_of_others_; }
  // Of this run.
  std::int64_t run_releases() const;
  // The smallest draw number that this run never used, across crashes too: a resumed sampler goes
  // on here.
  std::uint64_t next_draw() const;
  bool private_noise() const { return reasons().empty(); }
  const std::vector<std::string>& reasons() const { return text_.contents.reasons; }
  // Of the ledger and of this run, 128 random bits each.
  const std::string& id() const { return text_.contents.id; }
  const std::string& run_id() const { return run_; }
  // As far as was read, like events(); nothing before a run said it.
  std::optional<std::int64_t> population() const { return text_.contents.population; }
  const LedgerHeader& header() const { return text_.contents.header; }

 private:
  // The releases that the file allows, and how many of them were made.
  struct Block {
    Reservation reserved;
    std::int64_t used = 0;
    std::uint64_t next_draw = 0;
    bool covers(const Event& event, std::uint64_t draw) const;
  };

  Ledger(LedgerFile file, std::int64_t block);
  static Ledger open_run(const std::string& path, const LedgerMark* mark, std::int64_t block);
  void check_usable() const;
  void check_place(const Event& event, const PassPlace& place) const;
  void check_mark(const LedgerMark& mark) const;
  std::optional<std::string> text_after(std::size_t size, const std::string& checksum) const;
  void repair();
  void refresh();
  void append(const std::string& lines);
  void reserve(const Event& event, std::uint64_t draw, const Admit& admit);
  bool admitted(const Admit& admit, const LedgerContents& next);
  std::int64_t block_of(const Event& event, const LedgerRun& run) const;
  LedgerContents settled() const;
  std::string settlement();
  const LedgerRun& run() const;

  LedgerText text_;
  std::string run_;
  LedgerFile file_;
  std::int64_t block_ = 1;
  std::optional<Block> open_;
  PassPlace last_;  // of the last batch in a pass that was recorded with its place
  std::int64_t lines_of_others_ = 0;
  std::int64_t process_;
  bool broken_ = false;
  bool asking_ = false;  // the run's Admit is being asked
};

}  // namespace sotto
