#include "sotto/dp/ledger.h"

#include <algorithm>
#include <limits>

#include <fcntl.h>
#include <nlohmann/json.hpp>

#include "sotto/core/error.h"
#include "sotto/dp/rdp_accountant.h"

namespace sotto {

namespace {

using Json = nlohmann::ordered_json;

std::string line(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void check_block(std::int64_t block) {
  check(block >= 1 && block <= largest_reservation, "ledger: block of {} releases", block);
}

}  // namespace

Ledger::Ledger(LedgerHeader header) { contents_.header = std::move(header); }

Ledger Ledger::create(const std::string& path, LedgerHeader header, std::int64_t block) {
  check_block(block);
  Ledger ledger(std::move(header));
  ledger.block_ = block;
  ledger.file_ = LedgerFile(path, O_CREAT | O_EXCL);
  ledger.append(line({{"sotto_ledger", ledger_version},
                      {"unit", ledger.header().unit},
                      {"relation", ledger.header().relation}}));
  ledger.file_.sync_folder();
  return ledger;
}

Ledger Ledger::open(const std::string& path, std::int64_t block) {
  check_block(block);
  Ledger ledger;
  ledger.block_ = block;
  ledger.file_ = LedgerFile(path, 0);
  const std::string text = ledger.file_.read();
  LedgerText read = parse_ledger(text, path);
  ledger.contents_ = std::move(read.contents);
  if (read.size < text.size()) ledger.file_.truncate(read.size);
  if (read.missing_newline) ledger.append("\n");
  return ledger;
}

Ledger::Ledger(Ledger&& other) noexcept
    : contents_(std::move(other.contents_)),
      file_(std::move(other.file_)),
      block_(other.block_),
      broken_(std::exchange(other.broken_, true)),
      open_(std::exchange(other.open_, {})) {}

Ledger::~Ledger() {
  try {
    if (!broken_) settle();
  } catch (const SystemFailure&) {
    // The reservation stays open and counts whole.
  }
}

bool Ledger::Reservation::covers(const Event& other, std::uint64_t draw) const {
  return used < count && event == other && draw - first_draw < static_cast<std::uint64_t>(count);
}

void Ledger::record(const Event& event, std::uint64_t draw) {
  check_usable();
  check_event("record", event);
  check(draw >= next_draw(), "record: draw released twice: draw {}, the next unused one is {}",
        draw, next_draw());
  check(draw < end_of_draws, "record: draw {} is too large", draw);
  if (!open_.covers(event, draw)) {
    const Reservation next{event, block_, 0, draw};
    append(settlement() + line({{"reserve", next.count},
                                {"first_draw", next.first_draw},
                                {"event", Json::parse(to_json(event))}}));
    open_ = next;
  }
  contents_.count(event, 1);
  contents_.next_draw = draw + 1;
  ++open_.used;
}

void Ledger::settle() {
  check_usable();
  append(settlement());
  open_ = {};
}

void Ledger::mark_not_private(const std::string& reason) {
  check_usable();
  std::vector<std::string>& known = contents_.reasons;
  if (std::find(known.begin(), known.end(), reason) != known.end()) return;
  known.push_back(reason);
  append(line({{"not_private", reason}}));
}

std::int64_t Ledger::releases() const {
  std::int64_t sum = 0;
  for (const auto& [event, count] : events()) sum += count;
  return sum;
}

void Ledger::check_usable() const {
  if (broken_) throw SystemFailure("ledger: not usable after a failure or a move: " + file_.path());
}

// A failed append leaves unknown bytes on the disk: nothing may follow it.
void Ledger::append(const std::string& lines) {
  if (lines.empty() || !file_.exists()) return;
  broken_ = true;
  file_.append(lines);
  broken_ = false;
}

std::string Ledger::settlement() const {
  if (open_.used == open_.count) return "";
  return line({{"settle", open_.used}, {"next_draw", std::max(next_draw(), open_.first_draw)}});
}

double epsilon(const Ledger& ledger, double delta) {
  RdpAccountant accountant;
  for (const auto& [event, count] : ledger.events()) accountant.compose(event, count);
  const double spent = accountant.epsilon(delta);
  return ledger.private_noise() ? spent : std::numeric_limits<double>::infinity();
}

}  // namespace sotto
