#include "memory/physical_batches.h"

#include <algorithm>
#include <new>
#include <numeric>

#include "core/allocator/allocator.h"
#include "core/error.h"

namespace sotto::memory {

bool out_of_memory(const std::exception& error) {
  return dynamic_cast<const OutOfMemory*>(&error) != nullptr ||
         dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
}

namespace {

// Returns whether `run` succeeded; rethrows an exception that a smaller physical batch cannot
// avoid.
bool ran(const std::function<void()>& run, bool can_be_parted) {
  try {
    run();
    return true;
  } catch (const std::exception& error) {
    if (!can_be_parted || !out_of_memory(error)) throw;
    return false;
  }
}

// The items of a batch: their rows and their kinds.
struct Items {
  std::span<const std::int64_t> rows, kinds;
  std::int64_t count() const { return std::ssize(rows); }
  std::int64_t rows_of(std::int64_t item) const { return rows[static_cast<std::size_t>(item)]; }
  bool alike(std::int64_t a, std::int64_t b) const {
    return kinds.empty() ||
           kinds[static_cast<std::size_t>(a)] == kinds[static_cast<std::size_t>(b)];
  }
};

// The remaining items of a batch: the first one, their rows, and the physical batches still
// required.
struct Rest {
  std::int64_t first, rows, parts;
};

Rest all(const Items& items, std::int64_t parts) {
  return {0, std::reduce(items.rows.begin(), items.rows.end()), parts};
}

// The rest after the next physical batch, which has at most `limit` rows unless its first item has
// more.
Rest after_next(const Items& items, const Rest& rest, std::int64_t limit) {
  const std::int64_t max = std::min(limit, (rest.rows + rest.parts - 1) / rest.parts);
  std::int64_t end = rest.first, rows = 0;
  do rows += items.rows_of(end++);
  while (end < items.count() && items.alike(rest.first, end) && rows + items.rows_of(end) <= max);
  return {end, rest.rows - rows, std::max<std::int64_t>(1, rest.parts - 1)};
}

}  // namespace

PhysicalBatches::PhysicalBatches(std::int64_t rows, std::int64_t parts)
    : rows_(rows), parts_(parts) {
  check(rows >= 1 && parts >= 1,
        "PhysicalBatches: {} rows at a time in at least {} physical batches", rows, parts);
}

std::vector<std::int64_t> PhysicalBatches::ends(std::span<const std::int64_t> rows_of,
                                                std::span<const std::int64_t> kinds) const {
  const Items items{rows_of, kinds};
  std::vector<std::int64_t> ends;
  for (Rest rest = all(items, parts_); rest.first < items.count();) {
    rest = after_next(items, rest, rows_);
    ends.push_back(rest.first);
  }
  return ends;
}

void PhysicalBatches::over(std::span<const std::int64_t> rows_of, const Run& run, const Lost& lost,
                           std::span<const std::int64_t> kinds) {
  const Items items{rows_of, kinds};
  for (Rest rest = all(items, parts_); rest.first < items.count();) {
    const Rest next = after_next(items, rest, rows_);
    const std::int64_t rows = rest.rows - next.rows;
    const bool can_be_parted = next.first - rest.first > 1 && rows > 1;
    if (ran([&] { run(rest.first, next.first); }, can_be_parted)) {
      rest = next;
      continue;
    }
    rows_ = rows / 2;
    if (lost()) rest = all(items, parts_);
  }
}

}  // namespace sotto::memory
