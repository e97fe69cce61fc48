#include "dp/ledger/ledger.h"

#include "core/error.h"
#include "core/ranks/collectives.h"
#include "core/ranks/one_rank.h"
#include "dp/ledger/open_ledger.h"

namespace sotto {

class Ledger::Locked {
 public:
  explicit Locked(OpenLedger& open) : open_(open), lock_(open.mutex()) {}
  OpenLedger* operator->() const { return &open_; }

 private:
  OpenLedger& open_;
  std::lock_guard<std::recursive_mutex> lock_;
};

// The copy of the ledger's data on a rank other than 0.
struct Ledger::Remote {
  static auto fields(auto& self) {
    return std::tie(self.header.unit, self.header.relation, self.id, self.run_id, self.resumed,
                    self.population);
  }
  LedgerHeader header;
  std::string id, run_id;
  bool resumed = false;
  std::int64_t population = 0;  // 0: not known yet
  std::weak_ptr<const void> claim{};
};

Ledger::Locked Ledger::locked() const {
  check(!remote_, "ledger: rank 0 alone has it");
  check(open_ != nullptr, "ledger: this handle was moved from");
  return Locked(*open_);
}

Ledger::Ledger(LedgerHeader header) : open_(std::make_shared<OpenLedger>(std::move(header))) {}

Ledger Ledger::create(const std::string& path, LedgerHeader header, std::int64_t block) {
  return Ledger(OpenLedger::create(path, std::move(header), block));
}

Ledger Ledger::open(const std::string& path, std::int64_t block) {
  return Ledger(OpenLedger::open(path, {}, block));
}

Ledger Ledger::adopt(const std::string& path, const LedgerHeader& header, std::int64_t block) {
  return Ledger(OpenLedger::open(path, header, block));
}

Ledger Ledger::resume(const std::string& path, const LedgerPosition& mark, std::int64_t block) {
  return Ledger(OpenLedger::open(path, mark, block));
}

Ledger Ledger::on_rank_0(std::shared_ptr<Ranks> ranks, const std::function<Ledger()>& open) {
  Ledger ledger{std::shared_ptr<OpenLedger>()};
  const auto run = ranks_or_one(ranks);
  Remote remote = broadcast(*run, "Ledger::on_rank_0", [&] {
    ledger = open();
    return Remote{ledger.header(), ledger.id(), ledger.run_id(), ledger.resumed(),
                  ledger.population().value_or(0)};
  });
  if (run->rank() != 0) ledger.remote_ = std::make_shared<Remote>(std::move(remote));
  ledger.ranks_ = std::move(ranks);
  return ledger;
}

Ledger Ledger::of_candidate(LedgerHeader header, const PrivateSelection& selection) {
  return Ledger(std::make_shared<OpenLedger>(std::move(header), selection));
}

Ledger Ledger::new_run() const { return Ledger(locked()->new_run()); }

void Ledger::record(const Event& event, std::uint64_t draw, const BudgetCheck& budget_check,
                    const std::optional<EpochPosition>& position) {
  sotto::on_rank_0(*ranks_or_one(ranks_), "Ledger::record",
                   [&] { locked()->record(event, draw, budget_check, position); });
}

void Ledger::settle() {
  if (!remote_) locked()->settle();
}

void Ledger::set_population(std::int64_t units) {
  if (!remote_) return locked()->set_population(units);
  check(remote_->population == 0 || remote_->population == units,
        "ledger: a population of {} in a ledger of {}", units, remote_->population);
  remote_->population = units;
}

bool Ledger::plan(const EventCounts& max) { return locked()->plan(max); }
void Ledger::select(const PrivateSelection& selection) {
  check(!ranks_, "ledger: a private selection on several ranks");
  locked()->select(selection);
}
void Ledger::mark_not_private(const std::string& reason) { locked()->mark_not_private(reason); }
LedgerPosition Ledger::position() { return locked()->position(); }

std::shared_ptr<const void> Ledger::claim() {
  if (!remote_) return locked()->claim();
  check(remote_->claim.expired(), "ledger: another engine has this run");
  auto claim = std::make_shared<const char>();
  remote_->claim = claim;
  return claim;
}

History Ledger::history_after(const EventCounts& more) const {
  return locked()->history_after(more);
}
EventCounts Ledger::events() const { return locked()->events(); }
std::int64_t Ledger::lines_of_others() const { return locked()->lines_of_others(); }
std::int64_t Ledger::run_releases() const { return locked()->run_releases(); }
std::uint64_t Ledger::next_draw() const { return locked()->next_draw(); }
std::vector<std::string> Ledger::reasons() const { return locked()->contents().reasons; }
const std::string& Ledger::id() const { return remote_ ? remote_->id : locked()->contents().id; }
const std::string& Ledger::run_id() const { return remote_ ? remote_->run_id : locked()->run_id(); }
bool Ledger::resumed() const { return remote_ ? remote_->resumed : locked()->resumed(); }
std::optional<std::int64_t> Ledger::population() const {
  if (!remote_) return locked()->contents().population;
  return remote_->population > 0 ? std::optional(remote_->population) : std::nullopt;
}
std::optional<PrivateSelection> Ledger::selection_of_run() const {
  return remote_ ? std::nullopt : locked()->selection_of_run();
}
const LedgerHeader& Ledger::header() const {
  return remote_ ? remote_->header : locked()->contents().header;
}

}  // namespace sotto
