#include <initializer_list>
#include <string>
#include <vector>

#include "core/ranks/one_rank.h"
#include "core/ranks/rank_threads.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

RankProcessors on(const std::string& host, std::initializer_list<int> processors) {
  RankProcessors rank;
  host.copy(rank.host.data(), rank.host.size() - 1);
  for (const int processor : processors) CPU_SET(processor, &rank.mask);
  return rank;
}

std::vector<int> threads(const std::vector<RankProcessors>& ranks) {
  std::vector<int> counts;
  for (std::size_t k = 0; k < ranks.size(); ++k) counts.push_back(threads_of(k, ranks));
  return counts;
}

}  // namespace

TEST_CASE("ranks that are not bound share their host's processors, and have one thread at least") {
  CHECK(threads({on("a", {0, 1, 2, 3})}) == std::vector{4});
  CHECK(threads({on("a", {0, 1, 2, 3}), on("a", {0, 1, 2, 3})}) == std::vector{2, 2});
  CHECK(threads({on("a", {0, 1, 2}), on("a", {0, 1, 2}), on("a", {0, 1, 2})}) ==
        std::vector{1, 1, 1});
  CHECK(threads({on("a", {0}), on("a", {0})}) == std::vector{1, 1});
}

TEST_CASE("ranks that are bound, or alone on their host, keep their processors") {
  CHECK(threads({on("a", {0}), on("a", {1, 2})}) == std::vector{1, 2});
  CHECK(threads({on("a", {0, 1}), on("b", {0, 1})}) == std::vector{2, 2});
}

TEST_CASE("one rank's line says so") {
  OneRank rank;
  CHECK(share_processors(rank).starts_with("1 rank on 1 host, "));
}
