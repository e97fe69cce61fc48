// An open ledger, which the handles of one run (Ledger) share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "dp/event.h"
#include "dp/ledger/ledger_contents.h"
#include "dp/ledger/ledger_file.h"
#include "dp/ledger/ledger_position.h"
#include "dp/ledger/ledger_text.h"

namespace sotto {

// See Ledger, which locks mutex() around each of these functions.
class OpenLedger {
 public:
  using BudgetCheck = std::function<bool(const History& after)>;

  // A ledger in memory; with a selection that of one of its runs, which refuses to hold more.
  explicit OpenLedger(LedgerHeader header, std::optional<PrivateSelection> selection = {});
  OpenLedger(LedgerFile file, std::int64_t block);
  static std::shared_ptr<OpenLedger> create(const std::string& path, LedgerHeader header,
                                            std::int64_t block);
  // The ways to open a file: as a new run; as the run of a position; or as the first run of a
  // ledger with this header and without releases.
  using How = std::variant<std::monostate, LedgerPosition, LedgerHeader>;
  static std::shared_ptr<OpenLedger> open(const std::string& path, const How& how,
                                          std::int64_t block);
  std::shared_ptr<OpenLedger> new_run();
  ~OpenLedger();
  OpenLedger(const OpenLedger&) = delete;
  OpenLedger& operator=(const OpenLedger&) = delete;

  void record(const Event& event, std::uint64_t draw, const BudgetCheck& budget_check,
              const std::optional<EpochPosition>& position);
  void settle();
  void set_population(std::int64_t units);
  bool plan(const EventCounts& max);
  void select(const PrivateSelection& selection);
  std::shared_ptr<const void> claim();
  void mark_not_private(const std::string& reason);
  LedgerPosition position();

  History history_after(const EventCounts& more) const;
  EventCounts events() const;
  std::int64_t lines_of_others() const;
  std::int64_t run_releases() const;
  std::uint64_t next_draw() const;
  const std::string& run_id() const { return run_; }
  bool resumed() const { return resumed_; }
  const std::optional<PrivateSelection>& selection_of_run() const;
  const LedgerContents& contents() const;
  // The mutex of all runs on one ledger in memory.
  std::recursive_mutex& mutex() const;

 private:
  // The releases that the open reservation allows, and the number made.
  struct OpenReservation {
    Reservation reserved;
    std::int64_t used = 0;
    std::uint64_t next_draw = 0;
    bool covers(const Event& event, std::uint64_t draw) const;
  };

  struct Shared;  // by the runs on one ledger in memory; with a file, each run has its own

  LedgerText& text() const;
  const LedgerFile& file() const;
  const LedgerRun& run() const;
  void check_usable() const;
  void check_most(const char* op, const EventCounts& releases) const;
  void reserve(const Event& event, std::uint64_t draw, std::uint64_t epoch_id,
               const BudgetCheck& budget_check);
  LedgerContents settled() const;
  std::string settlement();

  std::shared_ptr<Shared> shared_;
  std::string run_;
  std::int64_t block_;
  std::optional<OpenReservation> open_;
  EpochPosition last_;  // of the last batch in an epoch that was recorded with its position
  std::int64_t process_;
  bool resumed_ = false;
  std::weak_ptr<const void> claim_;
};

}  // namespace sotto
