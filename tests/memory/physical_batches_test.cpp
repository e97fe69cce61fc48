// The division of a logical batch into physical batches, and what happens when memory runs out.
#include "memory/physical_batches.h"

#include <new>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace sotto {
namespace {

using memory::PhysicalBatches;
using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

// The ranges that run for items with so many rows; runs with more rows than `fits` fail.
Ranges ranges(PhysicalBatches& batches, const std::vector<std::int64_t>& rows_of, std::int64_t fits,
              bool lost = false, const std::vector<std::int64_t>& kinds = {}) {
  Ranges done;
  batches.over(
      rows_of,
      [&](std::int64_t first, std::int64_t end) {
        std::int64_t rows = 0;
        for (std::int64_t k = first; k < end; ++k) rows += rows_of[static_cast<std::size_t>(k)];
        if (rows > fits) throw std::bad_alloc();
        done.emplace_back(first, end);
      },
      [&] {
        if (lost) done.clear();
        return lost;
      },
      kinds);
  return done;
}

TEST_CASE("items run in order, as many at a time as fit, and are never split") {
  PhysicalBatches batches(4);
  CHECK(ranges(batches, {1, 1, 1, 1, 1, 1}, 9) == Ranges{{0, 4}, {4, 6}});
  CHECK(ranges(batches, {2, 3, 7, 0, 1}, 9) == Ranges{{0, 1}, {1, 2}, {2, 3}, {3, 5}});
  CHECK(ranges(batches, {}, 9).empty());
  CHECK(batches.rows() == 4);
  CHECK_THROWS_AS(PhysicalBatches(0), std::invalid_argument);
}

TEST_CASE("without memory a physical batch is halved, for later batches too, down to one item") {
  PhysicalBatches batches(8);
  const std::vector<std::int64_t> ones(11, 1);
  CHECK(ranges(batches, ones, 3) == Ranges{{0, 2}, {2, 4}, {4, 6}, {6, 8}, {8, 10}, {10, 11}});
  CHECK(batches.rows() == 2);
  CHECK(ranges(batches, {1, 1}, 9) == Ranges{{0, 2}});
  CHECK_THROWS_AS(ranges(batches, {2, 5}, 3), std::bad_alloc);
  CHECK_THROWS_AS(ranges(batches, {0, 1}, 0), std::bad_alloc);
}

TEST_CASE("a batch restarts if a failed physical batch may have spoiled earlier results") {
  PhysicalBatches batches(4);
  CHECK(ranges(batches, {1, 1, 2, 2, 2}, 3, true) == Ranges{{0, 2}, {2, 3}, {3, 4}, {4, 5}});
}

TEST_CASE("a physical batch has items of one kind, even if more would fit") {
  PhysicalBatches batches(4);
  const std::vector<std::int64_t> kinds{7, 7, 8, 8, 8, 9};
  CHECK(ranges(batches, {1, 1, 1, 0, 3, 1}, 9, false, kinds) == Ranges{{0, 2}, {2, 5}, {5, 6}});
  CHECK(batches.ends(std::vector<std::int64_t>{1, 1, 1, 0, 3, 1}, kinds) ==
        std::vector<std::int64_t>{2, 5, 6});
  CHECK(ranges(batches, {1, 1, 2, 2, 2, 1}, 3, true, kinds) ==
        Ranges{{0, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}});
}

}  // namespace
}  // namespace sotto
