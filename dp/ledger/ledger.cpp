#include "dp/ledger/ledger.h"

#include "core/error.h"
#include "dp/ledger/open_ledger.h"

namespace sotto::inline dp {

class Ledger::Locked {
 public:
  explicit Locked(OpenLedger& open) : open_(open), lock_(open.mutex()) {}
  OpenLedger* operator->() const { return &open_; }

 private:
  OpenLedger& open_;
  std::lock_guard<std::recursive_mutex> lock_;
};

Ledger::Locked Ledger::locked() const {
  check(open_ != nullptr, "ledger: this handle was moved from");
  return Locked(*open_);
}

Ledger::Ledger(LedgerHeader header) : open_(std::make_shared<OpenLedger>(std::move(header))) {}

Ledger Ledger::create(const std::string& path, LedgerHeader header, std::int64_t block) {
  return Ledger(OpenLedger::create(path, std::move(header), block));
}

Ledger Ledger::open(const std::string& path, std::int64_t block) {
  return Ledger(OpenLedger::open(path, nullptr, block));
}

Ledger Ledger::resume(const std::string& path, const LedgerPosition& mark, std::int64_t block) {
  return Ledger(OpenLedger::open(path, &mark, block));
}

Ledger Ledger::new_run() const { return Ledger(locked()->new_run()); }

void Ledger::record(const Event& event, std::uint64_t draw, const BudgetCheck& budget_check,
                    const std::optional<EpochPosition>& position) {
  locked()->record(event, draw, budget_check, position);
}

void Ledger::settle() { locked()->settle(); }
void Ledger::set_population(std::int64_t units) { locked()->set_population(units); }
bool Ledger::plan(const EventCounts& max) { return locked()->plan(max); }
void Ledger::mark_not_private(const std::string& reason) { locked()->mark_not_private(reason); }
LedgerPosition Ledger::position() { return locked()->position(); }
std::shared_ptr<const void> Ledger::claim() { return locked()->claim(); }

History Ledger::history_after(const EventCounts& more) const {
  return locked()->history_after(more);
}
EventCounts Ledger::events() const { return locked()->events(); }
std::int64_t Ledger::lines_of_others() const { return locked()->lines_of_others(); }
std::int64_t Ledger::run_releases() const { return locked()->run_releases(); }
std::uint64_t Ledger::next_draw() const { return locked()->next_draw(); }
std::vector<std::string> Ledger::reasons() const { return locked()->contents().reasons; }
const std::string& Ledger::id() const { return locked()->contents().id; }
const std::string& Ledger::run_id() const { return locked()->run_id(); }
bool Ledger::resumed() const { return locked()->resumed(); }
std::optional<std::int64_t> Ledger::population() const { return locked()->contents().population; }
const LedgerHeader& Ledger::header() const { return locked()->contents().header; }

}  // namespace sotto::inline dp
