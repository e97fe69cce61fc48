#include "sotto/memory/physical_batches.h"

#include <algorithm>
#include <new>
#include <numeric>

#include "sotto/core/allocator.h"
#include "sotto/core/error.h"

namespace sotto::memory {

bool out_of_memory(const std::exception& error) {
  return dynamic_cast<const OutOfMemory*>(&error) != nullptr ||
         dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
}

namespace {

// Whether it ran; throws what cannot be helped by a smaller part.
bool ran(const std::function<void()>& run, bool can_be_parted) {
  try {
    run();
    return true;
  } catch (const std::exception& error) {
    if (!can_be_parted || !out_of_memory(error)) throw;
    return false;
  }
}

}  // namespace

PhysicalBatches::PhysicalBatches(std::int64_t rows, std::int64_t parts)
    : rows_(rows), parts_(parts) {
  check(rows >= 1 && parts >= 1, "PhysicalBatches: {} rows at a time in {} parts", rows, parts);
}

void PhysicalBatches::over(std::span<const std::int64_t> rows_of, const Run& run,
                           const Lost& lost) {
  const auto items = static_cast<std::int64_t>(rows_of.size());
  std::int64_t left = std::reduce(rows_of.begin(), rows_of.end()), parts = parts_;
  for (std::int64_t first = 0; first < items;) {
    const std::int64_t most = std::min(rows_, (left + parts - 1) / parts);
    std::int64_t end = first, rows = 0;
    do rows += rows_of[static_cast<std::size_t>(end++)];
    while (end < items && rows + rows_of[static_cast<std::size_t>(end)] <= most);
    const bool can_be_parted = end - first > 1 && rows > 1;
    if (ran([&] { run(first, end); }, can_be_parted)) {
      first = end;
      left -= rows;
      parts = std::max<std::int64_t>(1, parts - 1);
      continue;
    }
    rows_ = rows / 2;
    if (!lost()) continue;
    first = 0;
    left = std::reduce(rows_of.begin(), rows_of.end());
    parts = parts_;
  }
}

}  // namespace sotto::memory
