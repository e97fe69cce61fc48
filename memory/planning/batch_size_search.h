// The largest physical batch that fits: bytes grow in proportion to rows, with steps where size
// classes or budgets end, so that a line through two dry runs leads near the answer, and one or two
// more runs there make it certain.
#pragma once

#include <cstdint>
#include <functional>

namespace sotto::memory {

struct BatchSizeSearch {
  // The most rows that were found to fit; 0 when not even the fewest do.
  std::int64_t rows = 0;
  // Peak bytes of a run of them, or of the fewest; 0 when there was no memory for these.
  std::size_t measured = 0;
  // What the line said before that run; of the first two runs what they took.
  std::size_t predicted = 0;
  int runs = 0;  // dry runs that were made
};

// The peak of bytes in use during a dry run of so many rows, everything counted that is there
// anyway. May throw OutOfMemory, or std::bad_alloc, for more rows than there is memory for.
using PeakOf = std::function<std::size_t(std::int64_t rows)>;

// The most rows, of `least` to `most`, whose peak stays within `limit` bytes, or up to 1/32 of
// these bytes less.
BatchSizeSearch largest_batch_that_fits(const PeakOf& peak_of, std::int64_t least,
                                        std::int64_t most, std::size_t limit);

}  // namespace sotto::memory
