// Several runs on one ledger file, and training checkpoints that refer to it.
#include <csignal>
#include <map>
#include <thread>

#include <sys/wait.h>

#include "dp/ledger/ledger.h"
#include "tests/support/catch.h"
#include "tests/support/ledger_files.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

void record(Ledger& ledger, const Event& event, int times,
            const Ledger::BudgetCheck& budget_check = {}) {
  for (int i = 0; i < times; ++i) ledger.record(event, ledger.next_draw(), budget_check);
}

// Records releases until one is refused; returns their number.
int spend(Ledger& ledger, const Event& event, const Ledger::BudgetCheck& budget_check) {
  for (int made = 0;; ++made) {
    try {
      record(ledger, event, 1, budget_check);
    } catch (const std::invalid_argument&) {
      return made;
    }
  }
}

Ledger::BudgetCheck at_most(std::int64_t releases) {
  return [=](const History& after) { return total_releases(after.events) <= releases; };
}

std::int64_t charged(const Place& place) {
  return total_releases(parse_ledger(read(place.path()), "f").contents.events());
}

template <class F>
bool fails(F&& f, std::string_view part) {
  return throws<SystemFailure>(std::forward<F>(f), part);
}

}  // namespace

TEST_CASE("two ledgers on one file number their own draws and count both runs") {
  const Place place;
  Ledger first = Ledger::create(place.path(), {}, 4);
  Ledger second = Ledger::open(place.path(), 4);
  record(first, sampled, 5);
  CHECK(second.releases() == 0);
  record(second, everybody, 1);
  // One release of the first ledger's second block was made, and all four are reserved.
  CHECK(second.events() == EventCounts{{sampled, 8}, {everybody, 1}});
  CHECK(second.run_releases() == 1);
  CHECK(second.next_draw() == 1);
  CHECK(second.lines_of_others() == 2);
  CHECK(first.lines_of_others() == 0);
  first.settle();
  CHECK(first.events() == EventCounts{{sampled, 5}, {everybody, 4}});
  CHECK(first.lines_of_others() == 1);
  record(second, everybody, 4);
  CHECK(second.events() == EventCounts{{sampled, 5}, {everybody, 5}});
  second.settle();
  CHECK(charged(place) == 10);
}

TEST_CASE("noise that another run marks as not private counts for all") {
  const Place place;
  Ledger first = Ledger::create(place.path(), {}, 1);
  Ledger second = Ledger::open(place.path(), 1);
  first.mark_not_private("seeded noise");
  record(second, sampled, 1);
  CHECK_FALSE(second.private_noise());
  second.mark_not_private("seeded noise");
  CHECK(second.reasons().size() == 1);
  CHECK(Ledger::open(place.path()).reasons().size() == 1);
}

TEST_CASE("runs of one file are about one data set") {
  const Place place;
  Ledger first = Ledger::create(place.path(), {}, 4);
  Ledger second = Ledger::open(place.path(), 4);  // has not read what the first one declared
  record(first, sampled, 3);
  CHECK_THROWS_AS(first.set_population(0), std::invalid_argument);
  first.set_population(60);
  first.set_population(60);
  CHECK(throws([&] { second.set_population(61); },
               "a population of 61, where an earlier run said 60: one ledger is about one"));
  CHECK(second.population() == 60);
  second.set_population(60);
  record(second, sampled, 1);
  record(first, sampled, 1);
  first.settle();
  CHECK(charged(place) == 4 + 4);
  CHECK(lines_of(read(place.path())).size() == 4);  // a repeated declaration is not written
  Ledger memory;
  memory.set_population(5);
  CHECK(throws([&] { memory.set_population(6); }, "ledger: in memory: a population of 6"));
}

TEST_CASE("ledgers of several threads lose no release") {
  constexpr int threads = 4, times = 120;
  const Place place;
  { Ledger::create(place.path()); }
  std::vector<std::thread> all;
  for (int k = 0; k < threads; ++k) {
    all.emplace_back([&place, k] {
      Ledger ledger = Ledger::open(place.path(), 1 + 2 * k);
      record(ledger, k % 2 == 0 ? sampled : everybody, times);
    });
  }
  for (std::thread& thread : all) thread.join();
  const EventCounts events = Ledger::open(place.path()).events();
  // Their order is a matter of chance.
  CHECK(std::map(events.begin(), events.end()) ==
        std::map<Event, std::int64_t>{{sampled, 240}, {everybody, 240}});
}

TEST_CASE("ledgers of several processes lose no release, and one that dies costs its block") {
  constexpr int processes = 3, times = 60, block = 7;
  const Place place;
  { Ledger::create(place.path()); }
  std::vector<pid_t> children;
  for (int k = 0; k < processes; ++k) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    {
      Ledger ledger = Ledger::open(place.path(), block);
      record(ledger, sampled, times);
      if (k == 0) ::raise(SIGKILL);
    }
    ::_exit(0);
  }
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  // 60 releases take nine blocks of 7.
  CHECK(Ledger::open(place.path()).releases() == 63 + 2 * 60);
}

TEST_CASE("a reservation is as large as the budget allows") {
  const Place place;
  Ledger ledger = Ledger::create(place.path(), {}, 8);
  CHECK(spend(ledger, sampled, at_most(13)) == 13);
  const std::string text = read(place.path());
  CHECK(charged(place) == 13);
  CHECK(throws([&] { record(ledger, sampled, 1, at_most(13)); },
               "record: the budget allows no more: 13 releases by all runs"));
  CHECK(read(place.path()) == text);
  CHECK(ledger.releases() == 13);
  CHECK(ledger.next_draw() == 13);
  // A budget check that throws changes nothing.
  CHECK_THROWS_AS(
      record(ledger, sampled, 1, [](const History&) -> bool { throw std::bad_alloc(); }),
      std::bad_alloc);
  CHECK(read(place.path()) == text);
  record(ledger, sampled, 1, at_most(14));
  CHECK(ledger.releases() == 14);
  Ledger memory;
  CHECK(spend(memory, sampled, at_most(3)) == 3);
}

TEST_CASE("a budget check cannot make another release unseen") {
  const Place place;
  Ledger ledger = Ledger::create(place.path(), {}, 4);
  const Ledger::BudgetCheck greedy = [&](const History&) {
    ledger.record(everybody, 0);
    return true;
  };
  CHECK(throws([&] { ledger.record(sampled, 0, greedy); }, "written to by its own budget check"));
  CHECK(ledger.releases() == 0);
  record(ledger, sampled, 1);
  ledger.settle();
  CHECK(charged(place) == 1);
}

TEST_CASE("two runs that race for a budget do not exceed it") {
  constexpr std::int64_t budget = 101;
  for (const std::int64_t block : {1, 6}) {
    const Place place;
    { Ledger::create(place.path()); }
    std::vector<int> made(3);
    std::vector<std::thread> all;
    for (int& count : made) {
      all.emplace_back([&place, &count, block] {
        Ledger ledger = Ledger::open(place.path(), block);
        count = spend(ledger, sampled, at_most(budget));
      });
    }
    for (std::thread& thread : all) thread.join();
    // Blocks are used up before a run reserves more, and all that is left is granted.
    CHECK(charged(place) == budget);
    CHECK(made[0] + made[1] + made[2] == budget);
  }
}

TEST_CASE("a budget may be spent by another run between two records") {
  const Place place;
  Ledger first = Ledger::create(place.path(), {}, 1);
  Ledger second = Ledger::open(place.path(), 1);
  record(first, sampled, 1, at_most(3));
  record(second, sampled, 2, at_most(3));
  CHECK(first.releases() == 1);  // all that it has read
  CHECK_THROWS_AS(record(first, sampled, 1, at_most(3)), std::invalid_argument);
  CHECK(first.releases() == 3);
}

TEST_CASE("a copy that a fork made records nothing and settles nothing") {
  const Place place;
  Ledger ledger = Ledger::create(place.path(), {}, 10);
  record(ledger, sampled, 1);
  const std::string text = read(place.path());
  const pid_t child = ::fork();
  if (child == 0) {
    bool refused = false;
    {
      Ledger copy = std::move(ledger);
      refused = throws([&] { record(copy, sampled, 1); }, "carried across a fork") &&
                throws([&] { copy.settle(); }, "carried across a fork");
    }
    ::_exit(refused ? 0 : 1);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(read(place.path()) == text);
  record(ledger, sampled, 9);
  CHECK(read(place.path()) == text);
}

TEST_CASE("a file that is cut, edited, replaced or removed while in use ends the run") {
  for (const int kind : {0, 1, 2, 3, 4}) {
    CAPTURE(kind);
    const Place place;
    Ledger ledger = Ledger::create(place.path(), {}, 1);
    record(ledger, sampled, 2);
    const std::string before = read(place.path());
    record(ledger, sampled, 1);
    std::string text = read(place.path());
    if (kind == 0) write(place.path(), before);  // an old copy, in place
    if (kind == 1) write(place.path(), text.replace(text.size() - 9, 1, "x"));
    if (kind == 2) std::filesystem::remove(place.path());
    if (kind == 3) {
      std::filesystem::rename(place.path(), place.path("kept"));
      std::filesystem::copy(place.path("kept"), place.path());
    }
    if (kind == 4) write(place.path(), text + "{}\n");
    CHECK_THROWS_AS(record(ledger, sampled, 1), SystemFailure);
    CHECK(ledger.releases() == 3);
    CHECK(fails([&] { record(ledger, sampled, 1); }, "not usable after a failure"));
  }
}

TEST_CASE("an incomplete line that another run left is removed, and counts nothing") {
  const Place place;
  Ledger ledger = Ledger::create(place.path(), {}, 1);
  record(ledger, sampled, 1);
  const std::string text = read(place.path());
  LedgerText next = parse_ledger(text, "f");
  const std::string line = add_line(next, reserve(16, 0, sampled, other_run));
  write(place.path(), text + line.substr(0, 50));
  record(ledger, sampled, 1);
  CHECK(ledger.releases() == 2);
  // A line that lacks only its newline counts.
  const std::string longer = read(place.path());
  next = parse_ledger(longer, "f");
  const std::string again = add_line(next, reserve(16, 0, sampled, other_run));
  write(place.path(), longer + again.substr(0, again.size() - 1));
  record(ledger, sampled, 1);
  CHECK(ledger.releases() == 19);
  CHECK(charged(place) == 19);
}

TEST_CASE("a run is continued by one ledger at a time") {
  const Place place;
  Ledger ledger = Ledger::create(place.path(), {}, 4);
  const LedgerPosition mark = ledger.position();
  record(ledger, sampled, 1);
  CHECK(fails([&] { Ledger::resume(place.path(), mark); },
              "run " + mark.run + " is being continued by another ledger"));
  // If locks fail, the lines reveal it.
  const std::string text = read(place.path());
  LedgerText next = parse_ledger(text, "f");
  write(place.path(), text + add_line(next, reserve(4, 4, sampled, mark.run)));
  CHECK(fails([&] { ledger.settle(); }, "was continued by another ledger"));
  { const Ledger gone = std::move(ledger); }
  CHECK(Ledger::resume(place.path(), mark).run_releases() == 8);
}

TEST_CASE("a mark reads back from its JSON, and other texts are refused") {
  const Place place;
  const LedgerPosition mark = Ledger::create(place.path()).position();
  const std::string text = to_json(mark);
  CHECK(ledger_position_from_json(text) == mark);
  CHECK(mark.lines == 1);
  CHECK(mark.bytes == read(place.path()).size());
  CHECK_THROWS_AS(Ledger().position(), std::invalid_argument);
  for (const auto& [what, by] : std::vector<std::pair<std::string, std::string>>{
           {"{", "["},
           {"\"lines\":1,", ""},
           {"\"lines\":1", "\"lines\":-1"},
           {"\"lines\":1", "\"lines\":\"1\""},
           {"\"lines\":1", "\"lines\":1,\"more\":1"},
           {"\"bytes\":", "\"bytes\":18446744073709551"},
           {mark.run, mark.run + "0"},
           {mark.checksum, "g" + mark.checksum.substr(1)}}) {
    CAPTURE(what);
    std::string other = text;
    other.replace(other.find(what), what.size(), by);
    CHECK(throws([&] { ledger_position_from_json(other); }, "ledger position: "));
  }
}

TEST_CASE("all releases of a ledger ahead of its mark count, those of other runs, too") {
  const Place place;
  LedgerPosition mark;
  {
    Ledger ledger = Ledger::create(place.path(), {}, 4);
    record(ledger, sampled, 3);
    mark = ledger.position();
    CHECK(mark.releases == 3);
    record(ledger, sampled, 2);
    Ledger other = Ledger::open(place.path(), 1);
    record(other, sampled, 7);
  }
  Ledger ledger = Ledger::resume(place.path(), mark);
  CHECK(ledger.run_releases() == 5);
  CHECK(ledger.next_draw() == 5);
  CHECK(ledger.releases() == 12);
}

TEST_CASE("a ledger that is not its mark's, is behind it or was changed is refused") {
  const Place place;
  std::string before;
  LedgerPosition mark;
  {
    Ledger ledger = Ledger::create(place.path(), {}, 1);
    record(ledger, sampled, 3);
    before = read(place.path());
    record(ledger, sampled, 3);
    mark = ledger.position();
  }
  const std::string text = read(place.path());
  const auto refused = [&](const std::string& file, const char* why) {
    write(place.path(), file);
    const bool told = fails([&] { Ledger::resume(place.path(), mark); }, why);
    CHECK(read(place.path()) == file);
    return told;
  };
  { Ledger::create(place.path("other")); }
  CHECK(refused(read(place.path("other")), "not the checkpoint's ledger: its id is"));
  CHECK(refused(before, "behind the checkpoint, which saw 7 lines, and here are 4"));
  // An old copy that was continued to the original length, with every checksum in order.
  LedgerText next = parse_ledger(before, "f");
  std::string replayed = before;
  for (int k = 3; k < 9; ++k) {
    replayed += add_line(next, reserve(1, k, everybody, mark.run));
    if (replayed.size() >= text.size())
      CHECK(refused(replayed, "its first 7 lines are not those that the checkpoint saw"));
  }
  std::string same = before;
  next = parse_ledger(before, "f");
  for (int k = 4; k < 7; ++k) same += add_line(next, reserve(1, k, sampled, mark.run));
  CHECK(same.size() == text.size());
  CHECK(refused(same, "its first 7 lines are not those that the checkpoint saw"));
  LedgerPosition small = mark;
  small.bytes = 3;
  write(place.path(), text);
  CHECK(fails([&] { Ledger::resume(place.path(), small); }, "are not those"));
  CHECK(Ledger::resume(place.path(), mark).releases() == 6);
}
