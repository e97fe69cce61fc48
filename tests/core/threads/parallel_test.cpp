// File tags: [sanitized]
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/threads/background_work.h"
#include "core/threads/parallel.h"
#include "tests/support/catch.h"
#include "tests/support/threads.h"

using namespace sotto;

namespace {

// 0 + 1 + ... + (count - 1), with each term in a range of its own.
std::int64_t sum_in_parts(std::int64_t count) {
  std::atomic<std::int64_t> sum{0};
  parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) sum += i;
  });
  return sum;
}

std::vector<std::pair<std::int64_t, std::int64_t>> parts(std::int64_t count, std::int64_t grain) {
  std::mutex mutex;
  std::vector<std::pair<std::int64_t, std::int64_t>> found;
  parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::lock_guard lock(mutex);
    found.emplace_back(begin, end);
  });
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

TEST_CASE("the parts cover the range once and hold at least the grain") {
  for (const int threads : {1, 2, 3, 8}) {
    const Threads setting(threads);
    for (const std::int64_t count : {1, 2, 7, 10, 64, 1000}) {
      for (const std::int64_t grain : {0, 1, 2, 3, 6, 10, 999, 5000}) {
        std::int64_t next = 0;
        const auto found = parts(count, grain);
        for (const auto& [begin, end] : found) {
          CHECK(begin == next);
          CHECK((end - begin >= grain || found.size() == 1));
          CHECK(end > begin);
          next = end;
        }
        CHECK(next == count);
        CHECK(found.size() <= static_cast<std::size_t>(threads));
        CHECK(parts(count, grain) == found);
      }
    }
  }
}

TEST_CASE("work that is worth it runs on every thread") {
  const Threads setting(4);
  CHECK(parts(100, 1).size() == 4);
  CHECK(parts(100, 30).size() == 3);
}

namespace {

// Background work in chunks; it records how many are done, and whether the caller's thread did one.
class CountedPieces final : public BackgroundTask {
 public:
  explicit CountedPieces(int pieces) : left_(pieces) {}
  ~CountedPieces() { withdraw_background_work(*this); }
  bool run_chunk() override {
    if (left_.fetch_sub(1) <= 0) return false;
    by_caller_ = by_caller_ || std::this_thread::get_id() == caller_;
    ++done_;
    return true;
  }
  int done() const { return done_; }
  bool by_caller() const { return by_caller_; }

 private:
  const std::thread::id caller_ = std::this_thread::get_id();
  std::atomic<int> left_, done_{0};
  std::atomic<bool> by_caller_{false};
};

}  // namespace

TEST_CASE("idle threads do one background work at a time, until it is withdrawn") {
  const Threads setting(3);
  for (int round = 0; round < 100; ++round) {
    CountedPieces pieces(50), others(50);
    REQUIRE(offer_background_work(pieces));
    CHECK(!offer_background_work(others));
    CHECK(sum_in_parts(1000) == 499500);
    // Every other round withdraws without waiting.
    while (round % 2 == 0 && pieces.done() < 50) std::this_thread::yield();
    withdraw_background_work(pieces);
    const int done = pieces.done();
    CHECK(!pieces.by_caller());
    CHECK(sum_in_parts(1000) == 499500);
    CHECK(pieces.done() == done);
    CHECK(others.done() == 0);
  }
  const Threads alone(1);
  CountedPieces pieces(1);
  CHECK(!offer_background_work(pieces));
}

TEST_CASE(
    "idle work is withdrawn in a child that was forked off, which has no thread to wait for") {
  const Threads setting(3);
  CountedPieces pieces(1 << 30);
  REQUIRE(offer_background_work(pieces));
  while (pieces.done() == 0) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    withdraw_background_work(pieces);
    _exit(sum_in_parts(1000) == 499500 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("an empty range calls nothing") {
  CHECK(parts(0, 1).empty());
  CHECK(parts(-5, 1).empty());
}

TEST_CASE("a nested call runs whole on its own thread") {
  const Threads setting(4);
  std::atomic<int> calls{0};
  std::atomic<std::int64_t> sum{0};
  parallel_for(4, 1, [&](std::int64_t, std::int64_t) {
    parallel_for(100, 1, [&](std::int64_t begin, std::int64_t end) {
      ++calls;
      sum += end - begin;
    });
  });
  CHECK(calls == 4);
  CHECK(sum == 400);
}

TEST_CASE("an exception in a part comes back to the caller") {
  const Threads setting(3);
  for (int bad = 0; bad < 3; ++bad) {
    CHECK_THROWS_WITH(parallel_for(3, 1,
                                   [&](std::int64_t begin, std::int64_t) {
                                     if (begin == bad) throw std::runtime_error("part failed");
                                   }),
                      "part failed");
  }
  CHECK(parts(3, 1).size() == 3);
}

TEST_CASE("loops that follow each other closely do every part once") {
  const Threads setting(5);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < 20'000; ++i) {
    const std::int64_t count = 2 + i % 7;
    wrong += sum_in_parts(count) == count * (count - 1) / 2 ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("callers on several threads do not disturb each other") {
  const Threads setting(3);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < 2'000; ++i) wrong += sum_in_parts(10) == 45 ? 0 : 1;
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(wrong == 0);
}

// A child process has none of its parent's threads, so the caller executes all ranges.
TEST_CASE("a loop needs no other thread to begin, as after a fork") {
  const Threads setting(4);
  REQUIRE(sum_in_parts(100) == 4950);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(60);
    bool right = true;
    for (int i = 0; i < 100; ++i) right = right && sum_in_parts(100) == 4950;
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("OpenMP libraries see one thread inside a loop, and their own number after it") {
  const Threads setting(2);
  const int before = omp_get_max_threads();
  omp_set_num_threads(7);
  std::atomic<int> others{0};
  const auto look = [&](std::int64_t, std::int64_t) { others += omp_get_max_threads() - 1; };
  parallel_for(2, 1, look);
  parallel_for(1, 1, look);
  CHECK(others == 0);
  CHECK(omp_get_max_threads() == 7);
  CHECK(thread_count() == 2);
  omp_set_num_threads(before);
}

TEST_CASE("the number of threads from the environment is limited, too", "[threads]") {
  CHECK(thread_count() <= max_threads);
}

TEST_CASE("fewer than one thread, and more than machines have, are an error") {
  CHECK_THROWS_WITH(set_thread_count(0), "set_thread_count: 0 threads");
  CHECK_THROWS_WITH(set_thread_count(max_threads + 1), "set_thread_count: 1025 threads");
}
