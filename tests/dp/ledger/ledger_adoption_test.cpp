// Ledger::adopt().
#include <filesystem>
#include <optional>

#include "dp/ledger/ledger.h"
#include "tests/support/catch.h"
#include "tests/support/ledger_files.h"
#include "tests/support/throws.h"

namespace sotto {

TEST_CASE("a ledger that counts nothing is taken over by a new run") {
  const Place place;
  Ledger::create(place.path()).set_population(10);
  Ledger adopted = Ledger::adopt(place.path(), {});
  CHECK(adopted.population() == 10);
  adopted.record(sampled, 0);
  CHECK(adopted.releases() == 1);
}

TEST_CASE("a ledger that counts something, or is about something else, is not taken over") {
  const Place place;
  const LedgerHeader persons{.unit = "one person"};
  Ledger::create(place.path());
  CHECK(throws([&] { Ledger::adopt(place.path(), persons); }, "of other training"));
  Ledger::open(place.path()).record(sampled, 0);
  CHECK(throws([&] { Ledger::adopt(place.path(), {}); }, "counts 1 releases"));
  const std::string seeded = place.path("seeded");
  Ledger::create(seeded).mark_not_private("a test");
  CHECK(throws([&] { Ledger::adopt(seeded, {}); }, "of other training"));
  CHECK_THROWS_AS(Ledger::adopt(place.path("none"), {}), SystemFailure);
}

TEST_CASE("a ledger with a run that is open is not taken over") {
  const Place place;
  std::optional<Ledger> open = Ledger::create(place.path());
  CHECK(throws([&] { Ledger::adopt(place.path(), {}); }, "is in use"));
  open = Ledger::adopt((open.reset(), place.path()), {});
  CHECK(throws([&] { Ledger::adopt(place.path(), {}); }, "is in use"));
  open = Ledger::open((open.reset(), place.path()));
  CHECK(throws([&] { Ledger::adopt(place.path(), {}); }, "is in use"));
  open.reset();
  Ledger::adopt(place.path(), {});
}

}  // namespace sotto
