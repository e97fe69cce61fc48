#include "dp/ledger/open_ledger.h"

#include <algorithm>

#include <fcntl.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/atomic_file.h"
#include "core/random/secret_random.h"

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

}  // namespace

OpenLedger::OpenLedger(LedgerHeader header) : OpenLedger(LedgerFile(), 1) {
  text().contents.id = new_id();
  text().contents.header = std::move(header);
}

OpenLedger::OpenLedger(LedgerFile file, std::int64_t block)
    : shared_(std::make_shared<Shared>()),
      run_(new_id()),
      file_(std::move(file)),
      block_(block),
      process_(::getpid()) {}

std::shared_ptr<OpenLedger> OpenLedger::create(const std::string& path, LedgerHeader header,
                                               std::int64_t block) {
  check_block(block);
  auto ledger = std::make_shared<OpenLedger>(LedgerFile(path, O_CREAT | O_EXCL), block);
  ledger->text().contents.id = new_id();
  ledger->text().contents.header = std::move(header);
  const LedgerFile::Lock lock = ledger->file_.lock();
  ledger->file_.claim_run(ledger->run_);
  ledger->append(add_line(ledger->text(), header_line(ledger->text().contents)));
  ledger->file_.sync_folder();
  return ledger;
}

std::shared_ptr<OpenLedger> OpenLedger::open(const std::string& path, const LedgerPosition* mark,
                                             std::int64_t block) {
  check_block(block);
  auto ledger = std::make_shared<OpenLedger>(LedgerFile(path, 0), block);
  const LedgerFile::Lock lock = ledger->file_.lock();
  ledger->lines_ = ledger->file_.read(0);
  read_ledger(ledger->text(), ledger->lines_, path);
  if (mark != nullptr) {
    ledger->check_mark(*mark);
    ledger->run_ = mark->run;
    ledger->resumed_ = true;
  }
  ledger->file_.claim_run(ledger->run_);
  ledger->repair();
  return ledger;
}

std::shared_ptr<OpenLedger> OpenLedger::new_run() {
  check_usable();
  if (file_.exists()) return open(file_.path(), nullptr, block_);
  auto other = std::make_shared<OpenLedger>(LedgerFile(), block_);
  other->shared_ = shared_;
  return other;
}

OpenLedger::~OpenLedger() {
  const std::lock_guard lock(shared_->mutex);
  if (broken_ || process_ != ::getpid()) return;
  try {
    settle();
  } catch (const std::exception&) {
    // The reservation stays open and counts in full.
  }
}

bool OpenLedger::Block::covers(const Event& event, std::uint64_t draw) const {
  return used < reserved.count && event == reserved.event &&
         draw - reserved.first_draw < static_cast<std::uint64_t>(reserved.count);
}

// Without this, a batch of an uncharged epoch, or a repeated one, would be released without charge.
void OpenLedger::check_epoch_position(const Event& event, const EpochPosition& position) const {
  if (!event.paid) return;
  const LedgerRun::Pass* const pass = run().pass_of(event);
  check(pass != nullptr && pass->draw == position.began,
        "record: batch {} of an epoch that began at draw {}, which is not the last one charged",
        position.index_in_epoch, position.began);
  check(last_.began != position.began || last_.index_in_epoch < position.index_in_epoch,
        "record: batch {} of the epoch that began at draw {} comes after batch {}",
        position.index_in_epoch, position.began, last_.index_in_epoch);
}

void OpenLedger::record(const Event& event, std::uint64_t draw, const BudgetCheck& budget_check,
                        const std::optional<EpochPosition>& position) {
  check_usable();
  check_event("record", event);
  check(draw >= next_draw(), "record: draw released twice: draw {}, the next unused one is {}",
        draw, next_draw());
  check(draw < end_of_draws, "record: draw {} is too large", draw);
  if (position) check_epoch_position(event, *position);
  if (!open_ || !open_->covers(event, draw)) reserve(event, draw, budget_check);
  ++open_->used;
  open_->next_draw = draw + 1;
  if (position && event.batches > 1) last_ = *position;
}

void OpenLedger::reserve(const Event& event, std::uint64_t draw, const BudgetCheck& budget_check) {
  const LedgerFile::Lock lock = file_.lock();
  refresh();
  const LedgerContents before = settled();
  LedgerContents next = before;
  Reservation reservation{event, block_of(event, next.run(run_)), draw};
  next.run(run_).reserve(reservation);
  while (!admitted(budget_check, next)) {
    check(reservation.count > 1, "record: the budget allows no more: {} releases by all runs",
          total_releases(before.events()));
    reservation.count /= 2;
    next = before;
    next.run(run_).reserve(reservation);
  }
  if (file_.exists()) {
    std::string lines = settlement();  // first: the checksum of a line covers those before it
    lines += add_line(text(), reservation_line(next.run(run_), reservation));
    append(lines);
  }
  text().contents = std::move(next);
  open_ = {.reserved = reservation, .used = 0, .next_draw = draw};
}

// The ledger throws if `budget_check` writes to it: a record made during the check would be lost
// when the contents checked replace it.
bool OpenLedger::admitted(const BudgetCheck& budget_check, const LedgerContents& next) {
  if (!budget_check) return true;
  struct Asking {
    explicit Asking(bool& flag) : flag(flag) { flag = true; }
    ~Asking() { flag = false; }
    bool& flag;
  } asking(shared_->asking);
  return budget_check(next.history());
}

// The size of a reservation: at most the remaining plan, if there is one, because a crash would
// else charge unplanned releases. First batches of epochs are reserved singly, and paid ones up to
// those left.
std::int64_t OpenLedger::block_of(const Event& event, const LedgerRun& run) const {
  std::int64_t left = 0;
  for (const EventCounts* const counts : {&run.plan, &run.events}) {
    const auto found = std::ranges::find(*counts, event, &EventCounts::value_type::first);
    const std::int64_t count = found == counts->end() ? 0 : found->second;
    left += counts == &run.plan ? count : -count;
  }
  const std::int64_t block = left > 0 ? std::min(left, block_) : block_;
  if (event.batches == 1) return block;
  if (!event.paid) return 1;
  return std::clamp<std::int64_t>(run.payments_left(event), 1, block);
}

void OpenLedger::settle() {
  check_usable();
  if (!open_) return;
  if (open_->used < open_->reserved.count) {
    const LedgerFile::Lock lock = file_.lock();
    refresh();
    append(settlement());
    text().contents = settled();
  }
  open_.reset();
}

void OpenLedger::set_population(std::int64_t units) {
  check_usable();
  const LedgerFile::Lock lock = file_.lock();
  refresh();
  LedgerContents next = text().contents;
  try {
    next.set_population(units);
  } catch (const std::invalid_argument& error) {
    fail(fmt::format("ledger: {}: {}", file_.exists() ? file_.path() : "in memory", error.what()));
  }
  if (text().contents.population) return;
  append(add_line(text(), population_line(next.run(run_), units)));
  text().contents = std::move(next);
}

bool OpenLedger::plan(const EventCounts& max) {
  check_usable();
  const LedgerFile::Lock lock = file_.lock();
  refresh();
  if (max.empty() || !text().contents.events().empty()) return false;
  LedgerContents next = text().contents;
  LedgerRun& run = next.run(run_);
  if (run.plan == max) return true;
  next.set_plan(run, max);
  append(add_line(text(), plan_line(run, max)));
  text().contents = std::move(next);
  return true;
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
  const LedgerFile::Lock lock = file_.lock();
  refresh();
  if (known()) return;
  append(add_line(text(), not_private_line(text().contents.run(run_), reason)));
  text().contents.reasons.push_back(reason);
}

LedgerPosition OpenLedger::position() {
  check_usable();
  check(file_.exists(), "ledger: a mark of a ledger in memory");
  settle();
  const LedgerFile::Lock lock = file_.lock();
  refresh();
  file_.sync();  // other runs may have died before they synced
  return {.ledger = text().contents.id,
          .run = run_,
          .releases = run_releases(),
          .lines = text().lines,
          .bytes = text().size,
          .checksum = text().checksum};
}

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
  if (broken_) throw SystemFailure("ledger: not usable after a failure or a move: " + file_.path());
  check(!shared_->asking, "ledger: written to by its own budget check");
  check(process_ == ::getpid(),
        "ledger: carried across a fork, from process {} to {}: open it in this process", process_,
        ::getpid());
}

void OpenLedger::check_mark(const LedgerPosition& mark) const {
  const std::string& path = file_.path();
  if (mark.ledger != text().contents.id) {
    throw SystemFailure(
        fmt::format("ledger: {}: not the checkpoint's ledger: its id is {}, and {} "
                    "was used",
                    path, text().contents.id, mark.ledger));
  }
  if (mark.bytes > text().size) {
    throw SystemFailure(
        fmt::format("ledger: {}: behind the checkpoint, which saw {} lines, and here are {}: it "
                    "was cut short, or an old copy was put back",
                    path, mark.lines, text().lines));
  }
  if (!text_after(mark.bytes, mark.checksum)) {
    throw SystemFailure(
        fmt::format("ledger: {}: its first {} lines are not those that the checkpoint saw: it was "
                    "edited, or an old copy was put back and used",
                    path, mark.lines));
  }
}

// The file's text after `size` bytes; nullopt when no line with that checksum ends there.
std::optional<std::string> OpenLedger::text_after(std::size_t size,
                                                  const std::string& checksum) const {
  const std::string end = line_end(checksum);
  if (size <= end.size()) return std::nullopt;
  std::string text = file_.read(size - 1 - end.size());
  if (!text.starts_with(end)) return std::nullopt;
  return text.erase(0, end.size() + 1);
}

// Cuts the copy of the file after its last complete line, and ends that with a newline.
void OpenLedger::trim_lines() {
  lines_.resize(text().size - (text().missing_newline ? 1 : 0));
  if (text().missing_newline) lines_ += '\n';
}

// Completes or removes the incomplete last line that a crash left; the lock excludes other writers.
void OpenLedger::repair() {
  broken_ = true;
  trim_lines();
  const std::size_t kept = text().size - (text().missing_newline ? 1 : 0);
  if (!file_.read(kept).empty()) file_.truncate(kept);
  if (text().missing_newline) file_.append("\n");
  text().missing_newline = false;
  broken_ = false;
}

// Reads the lines that other runs appended. They count even if the path no longer names the file,
// which is checked afterwards.
void OpenLedger::read_news() {
  const std::optional<std::string> more = text_after(text().size, text().checksum);
  if (!more)
    throw SystemFailure("ledger: cut, edited or replaced while it was in use: " + file_.path());
  lines_ += *more;
  read_ledger(text(), *more, file_.path());
  file_.check_in_place();
}

// Saves this run's copy of the lines beside a file that has lost some of them. Returns text for the
// error message; empty if no release is known.
std::string OpenLedger::rescue() {
  if (text().contents.events().empty()) return "";
  trim_lines();
  try {
    return "; what this run knows of it is saved as " +
           write_new_file(file_.path() + ".rescue", lines_);
  } catch (const SystemFailure& error) {
    return fmt::format("; what this run knows of it cannot be saved: {}", error.what());
  }
}

// Brings the ledger up to date with the file; saves a rescue copy if the file was changed
// otherwise.
void OpenLedger::refresh() {
  if (!file_.exists()) return;
  broken_ = true;
  const LedgerRun mine = run();
  const std::int64_t lines = text().lines;
  try {
    read_news();
  } catch (const SystemFailure& error) {
    throw SystemFailure(error.what() + rescue());
  }
  lines_of_others_ += text().lines - lines;
  if (run() != mine) {
    throw SystemFailure(
        fmt::format("ledger: {}: run {} was continued by another ledger", file_.path(), run_));
  }
  repair();
}

// A failed append leaves unknown bytes on the disk, so broken_ stays true: no more is appended.
void OpenLedger::append(const std::string& lines) {
  if (lines.empty() || !file_.exists()) return;
  broken_ = true;
  file_.append(lines);
  lines_ += lines;
  broken_ = false;
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

const LedgerRun& OpenLedger::run() const {
  static const LedgerRun none;
  const auto& runs = text().contents.runs;
  const auto found =
      std::find_if(runs.begin(), runs.end(), [&](const LedgerRun& run) { return run.id == run_; });
  return found == runs.end() ? none : *found;
}

}  // namespace sotto
