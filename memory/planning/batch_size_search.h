// Searches the largest physical batch that fits. Bytes grow in proportion to rows, except for steps
// where size classes or budgets end: a line through two dry runs leads near the answer, and one or
// two more runs there confirm it.
#pragma once

#include <cstdint>
#include <functional>

namespace sotto::memory {

struct BatchSizeSearch {
  // The largest number of rows found to fit; 0 if not even the minimum does.
  std::int64_t rows = 0;
  // Peak bytes of a run with that many rows, or with the minimum; 0 if the minimum ran out of
  // memory.
  std::size_t measured = 0;
  // The prediction of the line before that run; for the first two runs, their own peak.
  std::size_t predicted = 0;
  int runs = 0;  // the number of dry runs
};

// Returns the peak bytes in use during a dry run of `rows` rows, including everything in use
// besides. May throw OutOfMemory or std::bad_alloc.
using PeakOf = std::function<std::size_t(std::int64_t rows)>;

// The largest number of rows, from `min` to `max`, whose peak is within `limit` bytes; the
// search stops early once 31/32 of the limit are used.
BatchSizeSearch largest_batch_that_fits(const PeakOf& peak_of, std::int64_t min, std::int64_t max,
                                        std::size_t limit);

}  // namespace sotto::memory
