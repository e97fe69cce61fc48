// File tags: [sanitized]
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/ranks/collectives.h"
#include "core/ranks/communication.h"
#include "core/ranks/one_rank.h"
#include "core/ranks/rank_failure.h"
#include "core/ranks/thread_ranks.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// The bytes that rank `from` sends to rank `to` in a round; some blocks are empty.
std::vector<std::byte> block(int from, int to, int round) {
  std::mt19937 random(static_cast<unsigned>((from * 31 + to) * 31 + round));
  const std::size_t sizes[] = {0, 1, 7, 1000, 100000};
  std::vector<std::byte> bytes(sizes[random() % 5]);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// The blocks of one exchange of a rank, and the room for what it receives.
struct Exchange {
  Exchange(const Ranks& ranks, int round) {
    for (int k = 0; k < ranks.size(); ++k) {
      send.push_back(block(ranks.rank(), k, round));
      want.push_back(block(k, ranks.rank(), round));
      got.emplace_back(want.back().size());
    }
  }
  Pending begin(Ranks& ranks, const std::string& place) {
    return ranks.exchange(place, {send.begin(), send.end()}, {got.begin(), got.end()});
  }
  std::vector<std::vector<std::byte>> send, want, got;
};

bool exchanges(Ranks& ranks) {
  bool equal = true;
  std::vector<Exchange> rounds;
  std::vector<Pending> pending;
  for (int round = 0; round < 20; ++round) rounds.emplace_back(ranks, round);
  for (Exchange& round : rounds) pending.push_back(round.begin(ranks, "test"));
  // The last first: operations overlap.
  for (std::size_t k = rounds.size(); k-- > 0;) {
    pending[k].wait();
    equal &= rounds[k].got == rounds[k].want;
  }
  return equal;
}

bool gathers(Ranks& ranks) {
  const std::vector<std::byte> own = block(ranks.rank(), 0, 1);
  std::vector<std::vector<std::byte>> want, got;
  for (int k = 0; k < ranks.size(); ++k) {
    want.push_back(block(k, 0, 1));
    got.emplace_back(want.back().size());
  }
  ranks.all_gather("test", own, {got.begin(), got.end()}).wait();
  return got == want;
}

bool tells_deals_and_collects(Ranks& ranks) {
  bool equal = true;
  for (int round = 0; round < 10; ++round) {
    const auto rank = ranks.rank();
    std::vector<std::vector<std::byte>> blocks;
    for (int k = 0; rank == 0 && k < ranks.size(); ++k) blocks.push_back(block(0, k, round));
    equal &= ranks.scatter("test", {blocks.begin(), blocks.end()}) == block(0, rank, round);
    equal &= ranks.broadcast("test", block(rank, 0, round)) == block(0, 0, round);
    std::vector<std::vector<std::byte>> want;
    for (int k = 0; rank == 0 && k < ranks.size(); ++k) want.push_back(block(k, 1, round));
    equal &= ranks.gather("test", block(rank, 1, round)) == want;
  }
  return equal;
}

// The failures that the ranks see when each runs the body.
std::vector<RankFailure> failures(int size, const std::function<void(Ranks&)>& body,
                                  const ThreadRanksOptions& options = {}) {
  const auto ranks = make_thread_ranks(size, options);
  std::vector<RankFailure> seen;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (const auto& each : ranks) {
    threads.emplace_back([&] {
      try {
        body(*each);
      } catch (const RankFailure& failure) {
        const std::lock_guard lock(mutex);
        seen.push_back(failure);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return seen;
}

void step(Ranks& ranks, const std::string& place) { Exchange(ranks, 0).begin(ranks, place).wait(); }

}  // namespace

TEST_CASE("blocks arrive, broadcast, scattered and gathered, on any number of ranks") {
  const int size = GENERATE(1, 2, 3, 4, 7);
  std::atomic<int> right{0};
  on_thread_ranks(size, [&](Ranks& ranks) {
    right += ranks.size() == size && exchanges(ranks) && gathers(ranks) &&
             tells_deals_and_collects(ranks);
  });
  CHECK(right == size);
}

TEST_CASE("one rank moves its bytes to itself") {
  OneRank rank;
  CHECK(exchanges(rank));
  CHECK(gathers(rank));
  CHECK(tells_deals_and_collects(rank));
  rank.fail("no memory");
  CHECK_THROWS_AS(rank.broadcast("test", {}), RankFailure);
}

TEST_CASE("planted times change no byte") {
  std::atomic<int> right{0};
  const ThreadRanksOptions slow{
      .latency_seconds = 1e-4, .bytes_per_second = 1e9, .rank_latency_seconds = {0, 3e-3, 1e-3}};
  on_thread_ranks(
      3, [&](Ranks& ranks) { right += exchanges(ranks) && tells_deals_and_collects(ranks); }, slow);
  CHECK(right == 3);
}

TEST_CASE("ranks at different operations are named with their places, on every rank") {
  const auto body = [](Ranks& ranks) {
    step(ranks, "forward");
    if (ranks.rank() == 1) ranks.broadcast("limits", {});
    step(ranks, "sums");
    step(ranks, "weights");
  };
  const auto seen = failures(3, body);
  REQUIRE(seen.size() == 3);
  for (const RankFailure& failure : seen) {
    CHECK(contains(failure.cause(), "operation 2"));
    CHECK(contains(failure.cause(), "\"sums\""));
    CHECK(contains(failure.cause(), "\"limits\""));
    CHECK(failure.ranks().size() == 3);
  }
}

TEST_CASE("ranks at different places of one kind, or with other sizes, fail") {
  const bool places = GENERATE(false, true);
  const auto body = [places](Ranks& ranks) {
    const bool other = ranks.rank() == 2;
    const std::vector<std::byte> bytes(places || !other ? 8 : 9);
    std::vector<std::vector<std::byte>> got(4, std::vector<std::byte>(8));
    got[2].resize(bytes.size());
    ranks.all_gather(places && other ? "b" : "a", bytes, {got.begin(), got.end()}).wait();
    step(ranks, "next");
  };
  const auto seen = failures(4, body);
  CHECK(seen.size() == 4);
  for (const RankFailure& failure : seen)
    CHECK(contains(failure.cause(),
                   places ? "operation 1, all_gather \"b\"" : "bytes at operation 1"));
}

TEST_CASE("a rank's exception ends all ranks and names it") {
  const auto body = [](Ranks& ranks) {
    step(ranks, "first");
    if (ranks.rank() == 2) throw std::out_of_range("no such sample");
    step(ranks, "second");
  };
  CHECK_THROWS_AS(on_thread_ranks(4, body), std::out_of_range);
  const auto failing = [](Ranks& ranks) {
    step(ranks, "first");
    if (ranks.rank() == 2) ranks.fail("no such sample");
    step(ranks, "second");
  };
  const auto seen = failures(4, failing);
  REQUIRE(seen.size() == 4);
  for (const RankFailure& failure : seen) {
    CHECK(failure.rank() == 2);
    CHECK(failure.cause() == "no such sample");
    CHECK(contains(failure.what(), "rank 2 of 4 on " + failure.host() + ": no such sample"));
    CHECK((contains(failure.ranks()[0].doing, "first") ||
           contains(failure.ranks()[0].doing, "second")));
  }
}

TEST_CASE("a rank that falls silent fails the others, and itself by their notice", "[gate]") {
  const ThreadRanksOptions options{
      .limits = {.silence_seconds = 3}, .silent_rank = 1, .silent_from = 2};
  const auto body = [](Ranks& ranks) {
    step(ranks, "first");
    step(ranks, "second");
  };
  const auto seen = failures(3, body, options);
  REQUIRE(seen.size() == 3);
  for (const RankFailure& failure : seen) {
    CHECK(failure.rank() == 1);
    CHECK(contains(failure.cause(), "dead, stopped or unreachable"));
  }
}

TEST_CASE("a rank that computes past the limit of an operation is named", "[gate]") {
  const ThreadRanksOptions options{.limits = {.silence_seconds = 5, .operation_seconds = 3}};
  std::promise<void> failed;
  const auto body = [&](Ranks& ranks) {
    step(ranks, "first");
    // Rank 0 does something long: until the other has failed.
    if (ranks.rank() == 0) failed.get_future().wait();
    try {
      step(ranks, "second");
    } catch (const RankFailure&) {
      if (ranks.rank() == 1) failed.set_value();
      throw;
    }
  };
  const auto seen = failures(2, body, options);
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].rank() == 0);
  CHECK(contains(seen[0].cause(), "rank 1 has waited for it in operation 2, exchange \"second\""));
  // It may have come to the operation by the time of the notice.
  const std::string& doing = seen[0].ranks()[0].doing;
  CHECK((contains(doing, "computes") || contains(doing, "waits in operation")));
}

TEST_CASE("a rank that ends its run while others go on fails them") {
  auto ranks = make_thread_ranks(2);
  std::thread early([&] { ranks[1].reset(); });
  CHECK_THROWS_AS(step(*ranks[0], "sums"), RankFailure);
  early.join();
}

TEST_CASE("bytes that nobody takes hold up no rank's end", "[gate]") {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 22}) {
    for (const bool late : {false, true}) {
      auto ranks = make_thread_ranks(2, {.limits = {.silence_seconds = 0.5}});
      if (!late) ranks[0].reset();
      ranks[1]->gather("trailing", std::vector<std::byte>(bytes));
      std::thread other([&] { ranks[1].reset(); });
      ranks[0].reset();
      other.join();
    }
  }
}

TEST_CASE(
    "a wait on a crowded host takes a third of the looks, which come a quarter late or less") {
  using Activity = Communication::Activity;
  constexpr auto least = std::chrono::microseconds(1);  // a look itself
  const auto looks = [&](Activity activity, bool crowded) {
    int count = 0;
    for (RankClock::duration quiet{}; quiet < std::chrono::milliseconds(30); ++count) {
      const auto pause = next_look(quiet, activity, crowded);
      CHECK(pause <= std::max<RankClock::duration>(quiet / 4, std::chrono::microseconds(100)));
      quiet += std::max<RankClock::duration>(pause, least);
    }
    return count;
  };
  for (const Activity activity : {Activity::waiting, Activity::arriving})
    CHECK(3 * looks(activity, true) < looks(activity, false));
  CHECK(looks(Activity::waiting, true) < 60);
}

TEST_CASE("a wrong number of blocks is an error of the caller") {
  OneRank rank;
  CHECK_THROWS_AS(rank.all_gather("test", {}, {}), std::invalid_argument);
  std::vector<std::byte> room(1);
  CHECK_THROWS_AS(rank.all_gather("test", {}, {room}), std::invalid_argument);
  CHECK_THROWS_AS(rank.scatter("test", {}), std::invalid_argument);
  CHECK_THROWS_AS(make_thread_ranks(0), std::invalid_argument);
}

TEST_CASE("one rank undoes what fails, also if ranks of its loss failed") {
  OneRank ranks;
  bool undone = false;
  const auto fails = [] { throw RankFailure(0, "no route", {{"host", "sends"}}); };
  CHECK_THROWS_AS(abort_on_error(ranks, fails, [&] { undone = true; }), RankFailure);
  CHECK(undone);
}
