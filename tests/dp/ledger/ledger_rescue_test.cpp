// The rescue copy that a run saves of a ledger whose file was removed or changed during the run.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "dp/ledger/ledger.h"
#include "tests/support/catch.h"
#include "tests/support/ledger_files.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

void record(Ledger& ledger, const Event& event, int times) {
  for (int i = 0; i < times; ++i) ledger.record(event, ledger.next_draw());
}

template <class F>
bool fails(F&& f, std::string_view part) {
  return throws<SystemFailure>(std::forward<F>(f), part);
}

}  // namespace

TEST_CASE("a run that is ended by what became of its file saves all that it knows of it") {
  const std::vector<std::function<void(const Place&, const std::string&)>> attacks = {
      [](const Place& place, const std::string&) { std::filesystem::remove(place.path()); },
      [](const Place& place, const std::string&) {  // by another ledger
        std::filesystem::remove(place.path());
        Ledger::create(place.path());
      },
      [](const Place& place, const std::string& text) {
        write(place.path(), text.substr(0, text.size() / 2));
      },
      [](const Place& place, const std::string& text) { write(place.path(), text + "stray\n"); },
      [](const Place& place,
         const std::string& text) {  // in lines that nobody reads again
        write(place.path(), "x" + text.substr(0, text.size() - 2) + "\n");
      }};
  for (std::size_t kind = 0; kind < attacks.size(); ++kind) {
    CAPTURE(kind);
    const Place place;
    Ledger ledger = Ledger::create(place.path(), {}, 2);
    record(ledger, sampled, 3);
    const LedgerPosition mark = ledger.position();
    {
      Ledger other = Ledger::open(place.path(), 1);
      record(other, everybody, 1);
    }
    const std::string text = read(place.path()), rescue = place.path() + ".rescue";
    // Existing files and links are not replaced.
    write(rescue, "mine");
    std::filesystem::create_symlink("nowhere", rescue + ".2");
    attacks[kind](place, text);
    CHECK(fails([&] { record(ledger, sampled, 1); },
                "; what this run knows of it is saved as " + rescue + ".3"));
    const std::size_t known = kind < 2 || kind == 3 ? text.size() : mark.bytes;
    CHECK(read(rescue + ".3") == text.substr(0, known));
    CHECK(total_releases(parse_ledger(read(rescue + ".3"), "f").contents.events()) >= 3);
    CHECK(std::filesystem::status(rescue + ".3").permissions() ==
          (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
    CHECK(read(rescue) == "mine");
    CHECK(std::filesystem::is_symlink(rescue + ".2"));
    // Renamed to the ledger's path, the copy is a valid ledger.
    std::filesystem::rename(rescue + ".3", place.path());
    { const Ledger gone = std::move(ledger); }
    CHECK(Ledger::resume(place.path(), mark).run_releases() == 3);
    CHECK(std::distance(std::filesystem::directory_iterator(
                            std::filesystem::path(place.path()).parent_path()),
                        {}) == 3);
  }
}

TEST_CASE("a run whose file was lost before any release has nothing to save") {
  const Place place;
  Ledger ledger = Ledger::create(place.path());
  ledger.set_population(10);
  std::filesystem::remove(place.path());
  CHECK_THROWS_AS(record(ledger, sampled, 1), SystemFailure);
  CHECK_FALSE(std::filesystem::exists(place.path() + ".rescue"));
}

TEST_CASE("a copy that cannot be saved is told, too") {
  const Place place;
  std::filesystem::create_directory(place.path("in"));
  Ledger ledger = Ledger::create(place.path("in") + "/ledger", {}, 1);
  record(ledger, sampled, 1);
  std::filesystem::remove_all(place.path("in"));
  CHECK(fails([&] { record(ledger, sampled, 1); }, "; what this run knows of it cannot be saved"));
}
