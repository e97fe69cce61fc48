#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "catch.h"
#include "sotto/core/parallel.h"
#include "threads.h"

using namespace sotto;

namespace {

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

TEST_CASE("fewer than one thread is an error") {
  CHECK_THROWS_WITH(set_thread_count(0), "set_thread_count: 0 threads");
}
