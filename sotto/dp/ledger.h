// The record of what really ran, written ahead of every release: what the accountant composes.
// On disk a ledger is a text file of JSON lines; docs/accounting.md describes it and argues that a
// crash can only make it count too much.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sotto/dp/event.h"
#include "sotto/dp/ledger_contents.h"
#include "sotto/dp/ledger_file.h"

namespace sotto {

// Append-only and movable. One thread at a time.
class Ledger {
 public:
  // In memory.
  explicit Ledger(LedgerHeader header = {});
  // A new file. Throws SystemFailure when there is one already. The file is synced once for every
  // `block` >= 1 releases of one kind; a crash over-counts by at most that many.
  static Ledger create(const std::string& path, LedgerHeader header = {}, std::int64_t block = 16);
  // A file that was created before, to go on with. Releases reserved and not settled count whole.
  // Throws SystemFailure, naming file and line, when the file is not a ledger or is damaged other
  // than by a crash in the middle of an append, and when another ledger holds it.
  static Ledger open(const std::string& path, std::int64_t block = 16);
  ~Ledger();
  Ledger(Ledger&&) noexcept;
  Ledger& operator=(Ledger&&) = delete;

  // Counts one release of `event` on the sampler's draw number `draw`; call it before the release
  // leaves the mechanism. Throws std::invalid_argument unless draw >= next_draw() (below that, the
  // batch may have been released already) and draw < 2^62. Throws SystemFailure when the file
  // cannot be written: then nothing may be released, now or later.
  void record(const Event& event, std::uint64_t draw);
  // Writes down how much of the open reservation was used; at a checkpoint, and by the destructor.
  void settle();
  // For noise or batches that are not secret (a seeded generator): no privacy is claimed from here
  // on, and never again for this file.
  void mark_not_private(const std::string& reason);

  // What was released, in order, equal neighbours counted together.
  const std::vector<std::pair<Event, std::int64_t>>& events() const { return contents_.events; }
  std::int64_t releases() const;
  // The smallest draw number never used, across crashes too: a resumed sampler goes on here.
  std::uint64_t next_draw() const { return contents_.next_draw; }
  bool private_noise() const { return contents_.reasons.empty(); }
  const std::vector<std::string>& reasons() const { return contents_.reasons; }
  const LedgerHeader& header() const { return contents_.header; }

 private:
  // Releases of one event that the file allows, and how many of them were made.
  struct Reservation {
    Event event;
    std::int64_t count = 0, used = 0;
    std::uint64_t first_draw = 0;
    bool covers(const Event& other, std::uint64_t draw) const;
  };

  void check_usable() const;
  void append(const std::string& lines);
  std::string settlement() const;

  LedgerContents contents_;
  LedgerFile file_;
  std::int64_t block_ = 16;
  bool broken_ = false;
  Reservation open_;
};

// The smallest epsilon that the RDP accountant proves for what was released; infinity when the
// noise or the batches were not secret.
double epsilon(const Ledger& ledger, double delta);

}  // namespace sotto
