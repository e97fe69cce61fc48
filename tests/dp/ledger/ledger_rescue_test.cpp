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
      [](const Place& index_in_epoch, const std::string&) {
        std::filesystem::remove(index_in_epoch.path());
      },
      [](const Place& index_in_epoch, const std::string&) {  // by another ledger
        std::filesystem::remove(index_in_epoch.path());
        Ledger::create(index_in_epoch.path());
      },
      [](const Place& index_in_epoch, const std::string& text) {
        write(index_in_epoch.path(), text.substr(0, text.size() / 2));
      },
      [](const Place& index_in_epoch, const std::string& text) {
        write(index_in_epoch.path(), text + "stray\n");
      },
      [](const Place& index_in_epoch,
         const std::string& text) {  // in lines that nobody reads again
        write(index_in_epoch.path(), "x" + text.substr(0, text.size() - 2) + "\n");
      }};
  for (std::size_t kind = 0; kind < attacks.size(); ++kind) {
    CAPTURE(kind);
    const Place index_in_epoch;
    Ledger ledger = Ledger::create(index_in_epoch.path(), {}, 2);
    record(ledger, sampled, 3);
    const LedgerPosition mark = ledger.position();
    {
      Ledger other = Ledger::open(index_in_epoch.path(), 1);
      record(other, everybody, 1);
    }
    const std::string text = read(index_in_epoch.path()),
                      rescue = index_in_epoch.path() + ".rescue";
    // Existing files and links are not replaced.
    write(rescue, "mine");
    std::filesystem::create_symlink("nowhere", rescue + ".2");
    attacks[kind](index_in_epoch, text);
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
    std::filesystem::rename(rescue + ".3", index_in_epoch.path());
    { const Ledger gone = std::move(ledger); }
    CHECK(Ledger::resume(index_in_epoch.path(), mark).run_releases() == 3);
    CHECK(std::distance(std::filesystem::directory_iterator(
                            std::filesystem::path(index_in_epoch.path()).parent_path()),
                        {}) == 3);
  }
}

TEST_CASE("a run whose file was lost before any release has nothing to save") {
  const Place index_in_epoch;
  Ledger ledger = Ledger::create(index_in_epoch.path());
  ledger.set_population(10);
  std::filesystem::remove(index_in_epoch.path());
  CHECK_THROWS_AS(record(ledger, sampled, 1), SystemFailure);
  CHECK_FALSE(std::filesystem::exists(index_in_epoch.path() + ".rescue"));
}

TEST_CASE("a copy that cannot be saved is told, too") {
  const Place index_in_epoch;
  std::filesystem::create_directory(index_in_epoch.path("in"));
  Ledger ledger = Ledger::create(index_in_epoch.path("in") + "/ledger", {}, 1);
  record(ledger, sampled, 1);
  std::filesystem::remove_all(index_in_epoch.path("in"));
  CHECK(fails([&] { record(ledger, sampled, 1); }, "; what this run knows of it cannot be saved"));
}
