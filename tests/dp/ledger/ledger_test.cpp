#include "dp/ledger/ledger.h"

#include <algorithm>
#include <csignal>
#include <limits>
#include <random>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "dp/accounting/budget.h"
#include "dp/accounting/ledger_epsilon.h"
#include "dp/accounting/rdp/rdp_accountant.h"
#include "tests/support/catch.h"
#include "tests/support/ledger_files.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

// The text of the SystemFailure; empty when the file opens.
std::string failure_to_open(const std::string& path) {
  try {
    Ledger::open(path);
    return "";
  } catch (const SystemFailure& failure) {
    return failure.what();
  }
}

void record(Ledger& ledger, const Event& event, int times) {
  for (int i = 0; i < times; ++i) ledger.record(event, ledger.next_draw());
}

// Simulates a crash: returns the file as it is now, without the destructor's settlement.
std::string crashed(const Ledger&, const std::string& path) { return read(path); }

}  // namespace

TEST_CASE("a ledger in memory counts releases of a kind together") {
  Ledger ledger;
  CHECK(ledger.releases() == 0);
  record(ledger, sampled, 20);
  record(ledger, everybody, 1);
  record(ledger, sampled, 3);
  ledger.settle();
  record(ledger, sampled, 1);
  CHECK(ledger.events() == EventCounts{{sampled, 24}, {everybody, 1}});
  CHECK(ledger.releases() == 25);
  CHECK(ledger.next_draw() == 25);
}

TEST_CASE("epsilon of a ledger is that of its events, and infinite without secrecy") {
  Ledger ledger;
  CHECK(epsilon(ledger, 1e-5) == 0);
  CHECK(ledger.plan({{sampled, 500}, {everybody, 2}}));
  record(ledger, sampled, 500);
  record(ledger, everybody, 2);
  RdpAccountant accountant;
  accountant.compose(sampled, 500);
  accountant.compose(everybody, 2);
  CHECK(epsilon(ledger, 1e-5, accountant_factory(AccountantKind::rdp)) == accountant.epsilon(1e-5));
  CHECK(epsilon(ledger, 1e-5) < accountant.epsilon(1e-5));
  ledger.mark_not_private("seeded noise");
  CHECK(epsilon(ledger, 1e-5) == std::numeric_limits<double>::infinity());
}

TEST_CASE("epsilon of a ledger is for the ledger's relation, and for no other") {
  Ledger replaced({.relation = NeighboringRelation::replace_one});
  record(replaced, sampled, 500);
  for (const AccountantKind kind : {AccountantKind::pld, AccountantKind::rdp}) {
    const auto own = accountant_factory(kind, NeighboringRelation::replace_one);
    const auto accountant = own();
    accountant->compose(sampled, 500);
    CHECK(epsilon(replaced, 1e-5, kind) == accountant->epsilon(1e-5));
    CHECK(epsilon(replaced, 1e-5, own) == accountant->epsilon(1e-5));
    Ledger added;
    record(added, sampled, 500);
    CHECK(epsilon(replaced, 1e-5, kind) > 1.2 * epsilon(added, 1e-5, kind));
    const char* why =
        "an accountant for \"add or remove one\", where the ledger is for \"replace one\"";
    CHECK(throws([&] { epsilon(replaced, 1e-5, accountant_factory(kind)); }, why));
    CHECK(throws([&] { Budget(replaced, accountant_factory(kind), 1e-5, 3); }, why));
  }
}

TEST_CASE("a draw cannot be released twice") {
  const Place place;
  Ledger ledger = Ledger::create(place.path(), {}, 4);
  ledger.record(sampled, 7);
  CHECK_THROWS_WITH(ledger.record(sampled, 7),
                    "record: draw released twice: draw 7, the next unused one is 8");
  CHECK_THROWS_AS(ledger.record(everybody, 3), std::invalid_argument);
  CHECK_THROWS_AS(ledger.record(sampled, ~std::uint64_t{0}), std::invalid_argument);
  CHECK(ledger.releases() == 1);
  ledger.record(sampled, 8);
  ledger.record(sampled, 1000000);  // far beyond the reserved draws
  CHECK(ledger.releases() == 3);
}

TEST_CASE("a settled ledger reopens with exact counts") {
  const Place place;
  const LedgerHeader users{"one user", NeighboringRelation::replace_one};
  LedgerPosition mark;
  {
    Ledger ledger = Ledger::create(place.path(), users);
    record(ledger, sampled, 37);
    record(ledger, everybody, 2);
    ledger.settle();
    record(ledger, everybody, 1);
    ledger.record(sampled, 100);
    mark = ledger.position();
    CHECK(mark.releases == 41);
  }
  const std::string text = read(place.path());
  for (int life = 0; life < 3; ++life) {
    const Ledger ledger = Ledger::resume(place.path(), mark);
    CHECK(ledger.events() == EventCounts{{sampled, 38}, {everybody, 3}});
    CHECK(ledger.run_releases() == 41);
    CHECK(ledger.next_draw() == 101);
    CHECK(ledger.header() == users);
    CHECK(ledger.private_noise());
  }
  CHECK(read(place.path()) == text);
}

TEST_CASE("an unsettled reservation counts in full, and its draws are used up") {
  const Place place;
  std::string text;
  LedgerPosition mark;
  {
    Ledger ledger = Ledger::create(place.path(), {}, 10);
    mark = ledger.position();
    record(ledger, sampled, 13);
    text = crashed(ledger, place.path());
  }
  write(place.path(), text);
  Ledger ledger = Ledger::resume(place.path(), mark, 10);
  CHECK(ledger.events() == EventCounts{{sampled, 20}});
  CHECK(ledger.next_draw() == 20);
  CHECK_THROWS_AS(ledger.record(sampled, 13), std::invalid_argument);
  record(ledger, sampled, 1);
  CHECK(ledger.releases() == 21);
  // The reservation is not given back.
  ledger.settle();
  CHECK(Ledger::open(place.path()).releases() == 21);
}

TEST_CASE("epochs are reserved batch by batch, and not beyond the charged ones") {
  const Place place;
  const Event first{1.1, Sampling::balls_and_bins, 1, 6};
  Event paid = first;
  paid.paid = true;
  Ledger ledger = Ledger::create(place.path(), {}, 4);
  CHECK_THROWS_AS(ledger.record(paid, 0), std::invalid_argument);
  for (int pass = 0; pass < 3; ++pass) {
    record(ledger, first, 1);
    record(ledger, paid, 5);
  }
  CHECK(throws([&] { ledger.record(paid, 18); }, "already charged with their epoch"));
  CHECK(ledger.events() == EventCounts{{first, 3}, {paid, 15}});
  // A crash charges no epoch that was not begun.
  const auto after_crash = [&] { return parse_ledger(read(place.path()), "f").contents.events(); };
  record(ledger, first, 1);
  CHECK(after_crash() == EventCounts{{first, 4}, {paid, 15}});
  record(ledger, paid, 3);
  CHECK(after_crash() == EventCounts{{first, 4}, {paid, 19}});
  ledger.settle();
  CHECK(Ledger::open(place.path()).events() == EventCounts{{first, 4}, {paid, 18}});
  Ledger memory;
  record(memory, first, 1);
  record(memory, paid, 5);
  CHECK_THROWS_AS(memory.record(paid, 6), std::invalid_argument);
}

TEST_CASE("the file is touched once in a block") {
  const Place place;
  Ledger ledger = Ledger::create(place.path(), {}, 16);
  record(ledger, sampled, 1);
  const std::string text = read(place.path());
  record(ledger, sampled, 15);
  CHECK(read(place.path()) == text);
  record(ledger, sampled, 1);
  CHECK(read(place.path()).size() > text.size());
}

TEST_CASE("a ledger marked as not private stays so") {
  const Place place;
  {
    Ledger ledger = Ledger::create(place.path());
    record(ledger, sampled, 2);
    ledger.mark_not_private("seeded \"noise\"\n");
    ledger.mark_not_private("seeded \"noise\"\n");
    ledger.mark_not_private("seeded batches \xff");
    record(ledger, sampled, 1);
  }
  const Ledger ledger = Ledger::open(place.path());
  CHECK_FALSE(ledger.private_noise());
  REQUIRE(ledger.reasons().size() == 2);
  CHECK(ledger.reasons()[0] == "seeded \"noise\"\n");
  CHECK(ledger.events() == EventCounts{{sampled, 3}});
}

TEST_CASE("a moved-from ledger records nothing") {
  const Place place;
  Ledger first = Ledger::create(place.path());
  record(first, sampled, 2);
  Ledger second = std::move(first);
  CHECK_THROWS_AS(first.record(sampled, 50), std::invalid_argument);
  record(second, sampled, 1);
  CHECK(second.releases() == 3);
}

TEST_CASE("a file that cannot be a ledger is refused") {
  const Place place;
  CHECK_THROWS_AS(Ledger::open(place.path()), SystemFailure);
  CHECK_THROWS_AS(Ledger::open("/dev/full"), SystemFailure);
  CHECK_THROWS_AS(Ledger::create("/nowhere/ledger"), SystemFailure);
  CHECK_THROWS_AS(Ledger::create(place.path(), {}, 0), std::invalid_argument);
  { Ledger::create(place.path()); }
  CHECK_THROWS_AS(Ledger::create(place.path()), SystemFailure);
  write(place.path(), "");
  CHECK(failure_to_open(place.path()).find("ledger.jsonl:1: no header") != std::string::npos);
}

// The crash may occur in the middle of any append, so the file may end anywhere.
TEST_CASE("a file cut at any byte counts every acknowledged release", "[gate]") {
  const Place place;
  struct Moment {
    std::size_t size;
    std::int64_t acknowledged;
  };
  std::vector<Moment> moments;
  std::string text;
  {
    Ledger ledger = Ledger::create(place.path(), {}, 3);
    for (int i = 0; i < 24; ++i) {
      record(ledger, i % 11 < 7 ? sampled : everybody, 1);
      if (i % 9 == 8) ledger.settle();
      if (i == 12) ledger.mark_not_private("\xc3\xa9t\xc3\xa9");
      moments.push_back({read(place.path()).size(), ledger.releases()});
    }
    text = crashed(ledger, place.path());
  }
  for (std::size_t size = 0; size <= text.size(); ++size) {
    std::int64_t acknowledged = 0;
    for (const Moment& moment : moments) {
      if (moment.size <= size) acknowledged = moment.acknowledged;
    }
    for (const std::string& rest : {std::string(), std::string(7, '\0')}) {
      CAPTURE(size, rest.size());
      const std::string cut = text.substr(0, size) + rest;
      if (size < lines_of(text)[0].size() - 1) {
        CHECK_THROWS_AS(parse_ledger(cut, "f"), SystemFailure);
        continue;
      }
      const std::int64_t counted = total_releases(parse_ledger(cut, "f").contents.events());
      CHECK(counted >= acknowledged);
      CHECK(counted <= acknowledged + 3);
    }
  }
}

TEST_CASE("a file that was cut is continued") {
  const Place place;
  const std::string text = file_of({header, reserve(16, 0), settle(5, 5), reserve(8, 5)});
  for (std::size_t size = lines_of(text)[0].size() - 1; size <= text.size(); size += 11) {
    CAPTURE(size);
    write(place.path(), text.substr(0, size) + std::string(size % 2, '\0'));
    std::int64_t counted = 0;
    {
      Ledger ledger = Ledger::open(place.path(), 3);
      counted = ledger.releases();
      record(ledger, everybody, 1);
    }
    CHECK(Ledger::open(place.path()).releases() == counted + 1);
  }
}

TEST_CASE("a last line that lacks only its newline counts") {
  const Place place;
  const std::string text = file_of({header, reserve(16, 0)});
  write(place.path(), text.substr(0, text.size() - 1));
  CHECK(Ledger::open(place.path()).releases() == 16);
  CHECK(read(place.path()) == text);
  write(place.path(), text.substr(0, text.size() - 1) + std::string(3, '\0'));
  CHECK(Ledger::open(place.path()).releases() == 16);
  CHECK(read(place.path()) == text);
}

TEST_CASE("when the disk is full nothing counts as released, now or later") {
  const Place place;
  Ledger ledger = Ledger::create(place.path(), {}, 2);
  record(ledger, sampled, 2);
  struct rlimit before {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit limit { read(place.path()).size() + 20, before.rlim_max };
  ::setrlimit(RLIMIT_FSIZE, &limit);
  CHECK_THROWS_AS(ledger.record(sampled, 2), SystemFailure);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(ledger.releases() == 2);
  CHECK_THROWS_AS(ledger.record(sampled, 2), SystemFailure);
  CHECK_THROWS_AS(ledger.settle(), SystemFailure);
  CHECK_THROWS_AS(ledger.mark_not_private("reason"), SystemFailure);
  Ledger moved = std::move(ledger);
  { const Ledger gone = std::move(moved); }
  CHECK(Ledger::open(place.path()).releases() == 2);
}

// The child reports each release through a pipe after recording it, and dies at some moment.
TEST_CASE("after kill -9 the file counts at least what was released") {
  constexpr int block = 5;
  std::mt19937 random(6);
  for (int round = 0; round < 15; ++round) {
    const Place place;
    { Ledger::create(place.path(), {}, block); }
    int pipe_ends[2];
    REQUIRE(::pipe(pipe_ends) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      Ledger ledger = Ledger::open(place.path(), block);
      for (int i = 0;; ++i) {
        record(ledger, i % 13 < 9 ? sampled : everybody, 1);
        if (::write(pipe_ends[1], "r", 1) != 1) ::_exit(1);
        if (i % 7 == 6) ledger.settle();
      }
    }
    ::close(pipe_ends[1]);
    std::int64_t released = 0;
    char byte = 0;
    for (auto wait = random() % 40; wait > 0 && ::read(pipe_ends[0], &byte, 1) == 1; --wait) {
      ++released;
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    while (::read(pipe_ends[0], &byte, 1) == 1) ++released;
    ::close(pipe_ends[0]);
    const std::int64_t counted = Ledger::open(place.path()).releases();
    CHECK(counted >= released);
    CHECK(counted <= released + block);
  }
}
