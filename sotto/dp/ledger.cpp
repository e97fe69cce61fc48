#include "sotto/dp/ledger.h"

#include <algorithm>

#include <fcntl.h>
#include <unistd.h>

#include "sotto/core/error.h"
#include "sotto/core/secret_random.h"

namespace sotto {

namespace {

void check_block(std::int64_t block) {
  check(block >= 1 && block <= largest_reservation, "ledger: block of {} releases", block);
}

// 128 random bits in hexadecimal.
std::string new_id() {
  SecretRandom random;
  const std::uint64_t high = random.word(), low = random.word();
  return fmt::format("{:016x}{:016x}", high, low);
}

}  // namespace

Ledger::Ledger(LedgerHeader header) : Ledger(LedgerFile(), 1) {
  text_.contents.id = new_id();
  text_.contents.header = std::move(header);
}

Ledger::Ledger(LedgerFile file, std::int64_t block)
    : run_(new_id()), file_(std::move(file)), block_(block), process_(::getpid()) {}

Ledger Ledger::create(const std::string& path, LedgerHeader header, std::int64_t block) {
  check_block(block);
  Ledger ledger(LedgerFile(path, O_CREAT | O_EXCL), block);
  ledger.text_.contents.id = new_id();
  ledger.text_.contents.header = std::move(header);
  const LedgerFile::Lock lock = ledger.file_.lock();
  ledger.file_.claim_run(ledger.run_);
  ledger.append(add_line(ledger.text_, header_line(ledger.text_.contents)));
  ledger.file_.sync_folder();
  return ledger;
}

Ledger Ledger::open(const std::string& path, std::int64_t block) {
  return open_run(path, nullptr, block);
}

Ledger Ledger::resume(const std::string& path, const LedgerMark& mark, std::int64_t block) {
  return open_run(path, &mark, block);
}

Ledger Ledger::open_run(const std::string& path, const LedgerMark* mark, std::int64_t block) {
  check_block(block);
  Ledger ledger(LedgerFile(path, 0), block);
  const LedgerFile::Lock lock = ledger.file_.lock();
  read_ledger(ledger.text_, ledger.file_.read(0), path);
  if (mark != nullptr) {
    ledger.check_mark(*mark);
    ledger.run_ = mark->run;
  }
  ledger.file_.claim_run(ledger.run_);
  ledger.repair();
  return ledger;
}

Ledger::Ledger(Ledger&& other) noexcept
    : text_(std::move(other.text_)),
      run_(std::move(other.run_)),
      file_(std::move(other.file_)),
      block_(other.block_),
      open_(std::exchange(other.open_, {})),
      last_(other.last_),
      lines_of_others_(other.lines_of_others_),
      process_(other.process_),
      broken_(std::exchange(other.broken_, true)) {}

Ledger::~Ledger() {
  if (broken_ || process_ != ::getpid()) return;
  try {
    settle();
  } catch (const std::exception&) {
    // The reservation stays open and counts whole.
  }
}

bool Ledger::Block::covers(const Event& event, std::uint64_t draw) const {
  return used < reserved.count && event == reserved.event &&
         draw - reserved.first_draw < static_cast<std::uint64_t>(reserved.count);
}

// A batch of a pass that nobody paid for, or one that comes again, would be released for nothing.
void Ledger::check_place(const Event& event, const PassPlace& place) const {
  if (!event.paid) return;
  const LedgerRun::Pass* const pass = run().pass_of(event);
  check(pass != nullptr && pass->draw == place.began,
        "record: batch {} of a pass that began at draw {}, and was not the last to be paid for",
        place.place, place.began);
  check(last_.began != place.began || last_.place < place.place,
        "record: batch {} of the pass that began at draw {} comes after batch {}", place.place,
        place.began, last_.place);
}

void Ledger::record(const Event& event, std::uint64_t draw, const Admit& admit,
                    const std::optional<PassPlace>& place) {
  check_usable();
  check_event("record", event);
  check(draw >= next_draw(), "record: draw released twice: draw {}, the next unused one is {}",
        draw, next_draw());
  check(draw < end_of_draws, "record: draw {} is too large", draw);
  if (place) check_place(event, *place);
  if (!open_ || !open_->covers(event, draw)) reserve(event, draw, admit);
  ++open_->used;
  open_->next_draw = draw + 1;
  if (place && event.batches > 1) last_ = *place;
}

void Ledger::reserve(const Event& event, std::uint64_t draw, const Admit& admit) {
  const LedgerFile::Lock lock = file_.lock();
  refresh();
  const LedgerContents before = settled();
  LedgerContents next = before;
  Reservation reservation{event, block_of(event, next.run(run_)), draw};
  next.run(run_).reserve(reservation);
  while (!admitted(admit, next)) {
    check(reservation.count > 1, "record: the budget allows no more: {} releases by all runs",
          total_releases(before.events()));
    reservation.count /= 2;
    next = before;
    next.run(run_).reserve(reservation);
  }
  if (file_.exists()) {
    std::string lines = settlement();  // first: every line's checksum rests on those before it
    lines += add_line(text_, reservation_line(next.run(run_), reservation));
    append(lines);
  }
  text_.contents = std::move(next);
  open_ = {.reserved = reservation, .used = 0, .next_draw = draw};
}

// What was recorded in between would be lost with the contents that were asked about.
bool Ledger::admitted(const Admit& admit, const LedgerContents& next) {
  if (!admit) return true;
  struct Asking {
    explicit Asking(bool& flag) : flag(flag) { flag = true; }
    ~Asking() { flag = false; }
    bool& flag;
  } asking(asking_);
  return admit(next.events());
}

// The first batch of a pass is followed by others, and those cannot be more than are paid for.
std::int64_t Ledger::block_of(const Event& event, const LedgerRun& run) const {
  if (event.batches == 1) return block_;
  if (!event.paid) return 1;
  return std::clamp<std::int64_t>(run.payments_left(event), 1, block_);
}

void Ledger::settle() {
  check_usable();
  if (!open_) return;
  if (open_->used < open_->reserved.count) {
    const LedgerFile::Lock lock = file_.lock();
    refresh();
    append(settlement());
    text_.contents = settled();
  }
  open_.reset();
}

void Ledger::set_population(std::int64_t units) {
  check_usable();
  const LedgerFile::Lock lock = file_.lock();
  refresh();
  LedgerContents next = text_.contents;
  try {
    next.set_population(units);
  } catch (const std::invalid_argument& error) {
    fail(fmt::format("ledger: {}: {}", file_.exists() ? file_.path() : "in memory", error.what()));
  }
  if (population()) return;
  append(add_line(text_, population_line(next.run(run_), units)));
  text_.contents = std::move(next);
}

void Ledger::mark_not_private(const std::string& reason) {
  check_usable();
  const auto known = [&] {
    return std::find(reasons().begin(), reasons().end(), reason) != reasons().end();
  };
  if (known()) return;
  const LedgerFile::Lock lock = file_.lock();
  refresh();
  if (known()) return;
  append(add_line(text_, not_private_line(text_.contents.run(run_), reason)));
  text_.contents.reasons.push_back(reason);
}

LedgerMark Ledger::mark() {
  check_usable();
  check(file_.exists(), "ledger: a mark of a ledger in memory");
  settle();
  const LedgerFile::Lock lock = file_.lock();
  refresh();
  file_.sync();  // others may have died before they did
  return {.ledger = text_.contents.id,
          .run = run_,
          .releases = run_releases(),
          .lines = text_.lines,
          .bytes = text_.size,
          .checksum = text_.checksum};
}

EventCounts Ledger::events() const {
  EventCounts all = text_.contents.events();
  if (open_) add_releases(all, open_->reserved.event, open_->used - open_->reserved.count);
  return all;
}

std::int64_t Ledger::run_releases() const {
  const std::int64_t unused = open_ ? open_->reserved.count - open_->used : 0;
  return total_releases(run().events) - unused;
}

std::uint64_t Ledger::next_draw() const { return open_ ? open_->next_draw : run().next_draw; }

void Ledger::check_usable() const {
  if (broken_) throw SystemFailure("ledger: not usable after a failure or a move: " + file_.path());
  check(!asking_, "ledger: written to by what was asked whether to admit a release");
  check(process_ == ::getpid(),
        "ledger: carried across a fork, from process {} to {}: open it anew", process_, ::getpid());
}

void Ledger::check_mark(const LedgerMark& mark) const {
  const std::string& path = file_.path();
  if (mark.ledger != text_.contents.id) {
    throw SystemFailure(
        fmt::format("ledger: {}: not the checkpoint's ledger: its id is {}, and {} "
                    "was used",
                    path, text_.contents.id, mark.ledger));
  }
  if (mark.bytes > text_.size) {
    throw SystemFailure(
        fmt::format("ledger: {}: behind the checkpoint, which saw {} lines, and here are {}: it "
                    "was cut short, or an old copy was put back",
                    path, mark.lines, text_.lines));
  }
  if (!text_after(mark.bytes, mark.checksum)) {
    throw SystemFailure(
        fmt::format("ledger: {}: its first {} lines are not those that the checkpoint saw: it was "
                    "edited, or an old copy was put back and used",
                    path, mark.lines));
  }
}

// What the file holds after `size` bytes, or nothing when a line with that checksum does not end
// there.
std::optional<std::string> Ledger::text_after(std::size_t size, const std::string& checksum) const {
  const std::string end = line_end(checksum);
  if (size <= end.size()) return std::nullopt;
  std::string text = file_.read(size - 1 - end.size());
  if (!text.starts_with(end)) return std::nullopt;
  return text.erase(0, end.size() + 1);
}

// Completes or removes what a crash left of the last line; nobody else is writing it.
void Ledger::repair() {
  broken_ = true;
  const std::size_t kept = text_.size - (text_.missing_newline ? 1 : 0);
  if (!file_.read(kept).empty()) file_.truncate(kept);
  if (text_.missing_newline) file_.append("\n");
  text_.missing_newline = false;
  broken_ = false;
}

// Reads what others appended.
void Ledger::refresh() {
  if (!file_.exists()) return;
  broken_ = true;
  file_.check_in_place();
  const std::optional<std::string> more = text_after(text_.size, text_.checksum);
  if (!more)
    throw SystemFailure("ledger: cut, edited or replaced while it was in use: " + file_.path());
  const LedgerRun mine = run();
  const std::int64_t lines = text_.lines;
  read_ledger(text_, *more, file_.path());
  lines_of_others_ += text_.lines - lines;
  if (run() != mine) {
    throw SystemFailure(
        fmt::format("ledger: {}: run {} was continued by another ledger", file_.path(), run_));
  }
  repair();
}

// A failed append leaves unknown bytes on the disk: this ledger appends nothing more.
void Ledger::append(const std::string& lines) {
  if (lines.empty() || !file_.exists()) return;
  broken_ = true;
  file_.append(lines);
  broken_ = false;
}

LedgerContents Ledger::settled() const {
  LedgerContents contents = text_.contents;
  if (open_ && open_->used < open_->reserved.count)
    contents.run(run_).settle(open_->used, open_->next_draw);
  return contents;
}

std::string Ledger::settlement() {
  if (!open_ || open_->used == open_->reserved.count) return "";
  return add_line(text_, settlement_line(text_.contents.run(run_), open_->used, open_->next_draw));
}

const LedgerRun& Ledger::run() const {
  static const LedgerRun none;
  const auto& runs = text_.contents.runs;
  const auto found =
      std::find_if(runs.begin(), runs.end(), [&](const LedgerRun& run) { return run.id == run_; });
  return found == runs.end() ? none : *found;
}

}  // namespace sotto
