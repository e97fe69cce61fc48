#include "dp/ledger/open_ledger.h"

#include <algorithm>

#include <fcntl.h>
#include <unistd.h>

#include "core/error.h"
#include "core/random/secret_random.h"
#include "dp/ledger/ledger_copy.h"

namespace sotto {

namespace {

void check_block(std::int64_t block) {
  check(block >= 1 && block <= max_reservation, "ledger: block of {} releases", block);
}

// 128 random bits in hexadecimal.
std::string new_id() {
  SecretRandom random;
  const std::uint64_t high = random.word(), low = random.word();
  return fmt::format("{:016x}{:016x}", high, low);
}

// Without this, a batch of an uncharged epoch, or a repeated one, would be released without charge.
void check_epoch_position(const LedgerRun& run, const EpochPosition& last, const Event& event,
                          const EpochPosition& position) {
  if (!event.paid) return;
  const LedgerRun::Epoch* const epoch = run.epoch_of(event);
  check(epoch != nullptr && epoch->draw == position.began,
        "record: batch {} of an epoch that began at draw {}, which is not the last one charged",
        position.index_in_epoch, position.began);
  check(epoch->id == position.epoch_id,
        "record: batch {} of an epoch that began at draw {}, drawn anew since it was charged",
        position.index_in_epoch, position.began);
  check(last.began != position.began || last.index_in_epoch < position.index_in_epoch,
        "record: batch {} of the epoch that began at draw {} comes after batch {}",
        position.index_in_epoch, position.began, last.index_in_epoch);
}

// A ledger that counts something, or is in use, is another run's.
void check_adoptable(LedgerCopy& copy, const LedgerHeader& header) {
  const std::string& path = copy.file().path();
  const std::string problem = copy.text().contents.adoption_problem(header);
  check(problem.empty(), "ledger: {} {}", path, problem);
  check(!copy.file().has_other_runs(), "ledger: {} is in use by another run: give another name",
        path);
}

// The ledger throws if `budget_check` writes to it: a record made during the check would be lost
// when the contents checked replace it.
bool admitted(const OpenLedger::BudgetCheck& budget_check, const LedgerContents& next,
              bool& asking) {
  if (!budget_check) return true;
  struct Asking {
    explicit Asking(bool& flag) : flag(flag) { flag = true; }
    ~Asking() { flag = false; }
    bool& flag;
  } asked(asking);
  return budget_check(next.history());
}

// The size of a reservation: at most the remaining plan, if there is one, because a crash would
// else charge unplanned releases. First batches of epochs are reserved singly, and paid ones up to
// those left.
std::int64_t block_of(const Event& event, const LedgerRun& run, std::int64_t max) {
  std::int64_t left = 0;
  for (const EventCounts* const counts : {&run.plan, &run.events}) {
    const auto found = std::ranges::find(*counts, event, &EventCounts::value_type::first);
    const std::int64_t count = found == counts->end() ? 0 : found->second;
    left += counts == &run.plan ? count : -count;
  }
  const std::int64_t block = left > 0 ? std::min(left, max) : max;
  if (event.batches == 1) return block;
  if (!event.paid) return 1;
  return std::clamp<std::int64_t>(run.payments_left(event), 1, block);
}

}  // namespace

struct OpenLedger::Shared {
  LedgerCopy copy;
  std::recursive_mutex mutex = {};  // recursive: a BudgetCheck may call the ledger
  bool asking = false;              // a BudgetCheck is running
  // The selection, if this is one of its runs, which may plan and release no more.
  std::optional<PrivateSelection> selection = {};
};

OpenLedger::OpenLedger(LedgerHeader header, std::optional<PrivateSelection> selection)
    : OpenLedger(LedgerFile(), 1) {
  shared_->selection = std::move(selection);
  text().contents.id = new_id();
  text().contents.header = std::move(header);
}

OpenLedger::OpenLedger(LedgerFile file, std::int64_t block)
    : shared_(new Shared{LedgerCopy(std::move(file))}),
      run_(new_id()),
      block_(block),
      process_(::getpid()) {}

std::shared_ptr<OpenLedger> OpenLedger::create(const std::string& path, LedgerHeader header,
                                               std::int64_t block) {
  check_block(block);
  auto ledger = std::make_shared<OpenLedger>(LedgerFile(path, O_CREAT | O_EXCL), block);
  ledger->text().contents.id = new_id();
  ledger->text().contents.header = std::move(header);
  LedgerCopy& copy = ledger->shared_->copy;
  const LedgerFile::Lock lock = copy.file().lock();
  copy.file().claim_run(ledger->run_);
  copy.append(add_line(copy.text(), header_line(copy.text().contents)));
  copy.file().sync_folder();
  return ledger;
}

std::shared_ptr<OpenLedger> OpenLedger::open(const std::string& path, const How& how,
                                             std::int64_t block) {
  check_block(block);
  auto ledger = std::make_shared<OpenLedger>(LedgerFile(path, 0), block);
  LedgerCopy& copy = ledger->shared_->copy;
  const LedgerFile::Lock lock = copy.file().lock();
  copy.read_all();
  if (const auto* const header = std::get_if<LedgerHeader>(&how)) check_adoptable(copy, *header);
  if (const auto* const mark = std::get_if<LedgerPosition>(&how)) {
    copy.check_position(*mark);
    ledger->run_ = mark->run;
    ledger->resumed_ = true;
  }
  copy.file().claim_run(ledger->run_);
  copy.repair();
  return ledger;
}

std::shared_ptr<OpenLedger> OpenLedger::new_run() {
  check_usable();
  if (file().exists()) return open(file().path(), How(), block_);
  auto other = std::make_shared<OpenLedger>(LedgerFile(), block_);
  other->shared_ = shared_;
  return other;
}

OpenLedger::~OpenLedger() {
  const std::lock_guard lock(shared_->mutex);
  if (!shared_->copy.usable() || process_ != ::getpid()) return;
  try {
    settle();
  } catch (const std::exception&) {
    // The reservation stays open and counts in full.
  }
}

bool OpenLedger::OpenReservation::covers(const Event& event, std::uint64_t draw) const {
  return used < reserved.count && event == reserved.event &&
         draw - reserved.first_draw < static_cast<std::uint64_t>(reserved.count);
}

void OpenLedger::record(const Event& event, std::uint64_t draw, const BudgetCheck& budget_check,
                        const std::optional<EpochPosition>& position) {
  check_usable();
  check_event("record", event);
  check(draw >= next_draw(), "record: draw released twice: draw {}, the next unused one is {}",
        draw, next_draw());
  check(draw < end_of_draws, "record: draw {} is too large", draw);
  if (position) check_epoch_position(run(), last_, event, *position);
  if (shared_->selection) {
    EventCounts after = events();
    add_releases(after, event, 1);
    check_most("record", after);
  }
  if (!open_ || !open_->covers(event, draw))
    reserve(event, draw, position ? position->epoch_id : 0, budget_check);
  ++open_->used;
  open_->next_draw = draw + 1;
  if (position && event.batches > 1) last_ = *position;
}

void OpenLedger::reserve(const Event& event, std::uint64_t draw, std::uint64_t epoch_id,
                         const BudgetCheck& budget_check) {
  const LedgerFile::Lock lock = file().lock();
  shared_->copy.refresh(run_);
  const LedgerContents before = settled();
  LedgerContents next = before;
  Reservation reservation{event, block_of(event, next.run(run_), block_), draw,
                          event.paid ? 0 : epoch_id};
  next.run(run_).reserve(reservation);
  while (!admitted(budget_check, next, shared_->asking)) {
    check(reservation.count > 1, "record: the budget allows no more: {} releases by all runs",
          total_releases(before.events()));
    reservation.count /= 2;
    next = before;
    next.run(run_).reserve(reservation);
  }
  if (file().exists()) {
    std::string lines = settlement();  // first: the checksum of a line covers those before it
    lines += add_line(text(), reservation_line(next.run(run_), reservation));
    shared_->copy.append(lines);
  }
  text().contents = std::move(next);
  open_ = {.reserved = reservation, .used = 0, .next_draw = draw};
}

void OpenLedger::settle() {
  check_usable();
  if (!open_) return;
  if (open_->used < open_->reserved.count) {
    const LedgerFile::Lock lock = file().lock();
    shared_->copy.refresh(run_);
    shared_->copy.append(settlement());
    text().contents = settled();
  }
  open_.reset();
}

void OpenLedger::set_population(std::int64_t units) {
  check_usable();
  const LedgerFile::Lock lock = file().lock();
  shared_->copy.refresh(run_);
  LedgerContents next = text().contents;
  try {
    next.set_population(units);
  } catch (const std::invalid_argument& error) {
    fail(
        fmt::format("ledger: {}: {}", file().exists() ? file().path() : "in memory", error.what()));
  }
  if (text().contents.population) return;
  shared_->copy.append(add_line(text(), population_line(next.run(run_), units)));
  text().contents = std::move(next);
}

bool OpenLedger::plan(const EventCounts& max) {
  check_usable();
  const LedgerFile::Lock lock = file().lock();
  shared_->copy.refresh(run_);
  check_most("plan", max);
  if (max.empty() || !text().contents.events().empty()) return false;
  LedgerContents next = text().contents;
  LedgerRun& run = next.run(run_);
  if (run.plan == max) return true;
  next.set_plan(run, max);
  shared_->copy.append(add_line(text(), plan_line(run, max)));
  text().contents = std::move(next);
  return true;
}

void OpenLedger::select(const PrivateSelection& selection) {
  check_usable();
  check(!shared_->selection, "ledger: a private selection within a run of another one");
  selection.runs.check_draws("private selection");
  const LedgerFile::Lock lock = file().lock();
  shared_->copy.refresh(run_);
  LedgerContents next = text().contents;
  LedgerRun& run = next.run(run_);
  next.set_selection(run, selection);
  shared_->copy.append(add_line(text(), selection_line(run, selection)));
  text().contents = std::move(next);
}

std::shared_ptr<const void> OpenLedger::claim() {
  check(claim_.expired(),
        "ledger: an engine holds this run already: an engine needs a run of its own "
        "(Ledger::new_run)");
  auto claim = std::make_shared<const char>();
  claim_ = claim;
  return claim;
}

void OpenLedger::mark_not_private(const std::string& reason) {
  check_usable();
  const auto known = [&] {
    const std::vector<std::string>& reasons = text().contents.reasons;
    return std::ranges::find(reasons, reason) != reasons.end();
  };
  if (known()) return;
  const LedgerFile::Lock lock = file().lock();
  shared_->copy.refresh(run_);
  if (known()) return;
  shared_->copy.append(add_line(text(), not_private_line(text().contents.run(run_), reason)));
  text().contents.reasons.push_back(reason);
}

LedgerPosition OpenLedger::position() {
  check_usable();
  check(file().exists(), "ledger: a mark of a ledger in memory");
  settle();
  const LedgerFile::Lock lock = file().lock();
  shared_->copy.refresh(run_);
  file().sync();  // other runs may have died before they synced
  return {.ledger = text().contents.id,
          .run = run_,
          .releases = run_releases(),
          .lines = text().lines,
          .bytes = text().size,
          .checksum = text().checksum};
}

const std::optional<PrivateSelection>& OpenLedger::selection_of_run() const {
  return shared_->selection;
}
const LedgerContents& OpenLedger::contents() const { return text().contents; }
std::recursive_mutex& OpenLedger::mutex() const { return shared_->mutex; }
std::int64_t OpenLedger::lines_of_others() const { return shared_->copy.lines_of_others(); }
LedgerText& OpenLedger::text() const { return shared_->copy.text(); }
const LedgerFile& OpenLedger::file() const { return shared_->copy.file(); }
const LedgerRun& OpenLedger::run() const { return shared_->copy.run(run_); }

EventCounts OpenLedger::events() const { return settled().events(); }

History OpenLedger::history_after(const EventCounts& more) const {
  LedgerContents contents = settled();
  LedgerRun& run = contents.run(run_);
  for (const auto& [event, count] : more) add_releases(run.events, event, count);
  return contents.history();
}

std::int64_t OpenLedger::run_releases() const {
  const std::int64_t unused = open_ ? open_->reserved.count - open_->used : 0;
  return total_releases(run().events) - unused;
}

std::uint64_t OpenLedger::next_draw() const { return open_ ? open_->next_draw : run().next_draw; }

void OpenLedger::check_usable() const {
  if (!shared_->copy.usable())
    throw SystemFailure("ledger: not usable after a failure or a move: " + file().path());
  check(!shared_->asking, "ledger: written to by its own budget check");
  check(process_ == ::getpid(),
        "ledger: carried across a fork, from process {} to {}: open it in this process", process_,
        ::getpid());
}

void OpenLedger::check_most(const char* op, const EventCounts& releases) const {
  if (!shared_->selection) return;
  const EventCounts& most = shared_->selection->run;
  for (const auto& [event, count] : releases) {
    const auto found = std::ranges::find(most, event, &EventCounts::value_type::first);
    const std::int64_t allowed = found == most.end() ? 0 : found->second;
    check(count <= allowed,
          "{}: {} releases of {}, of which a run of this private selection may make {}", op, count,
          to_json(event), allowed);
  }
}

LedgerContents OpenLedger::settled() const {
  LedgerContents contents = text().contents;
  if (open_ && open_->used < open_->reserved.count)
    contents.run(run_).settle(open_->used, open_->next_draw);
  return contents;
}

std::string OpenLedger::settlement() {
  if (!open_ || open_->used == open_->reserved.count) return "";
  return add_line(text(),
                  settlement_line(text().contents.run(run_), open_->used, open_->next_draw));
}

}  // namespace sotto
