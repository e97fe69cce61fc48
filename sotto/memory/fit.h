// The largest physical batch that fits: bytes grow in proportion to rows, with steps where size
// classes or budgets end, so that a line through two dry runs leads near the answer, and one or two
// more runs there make it certain.
#pragma once

#include <cstdint>
#include <functional>

namespace sotto::memory {

struct RowFit {
  std::int64_t rows = 0;     // the most that were found to fit
  std::size_t measured = 0;  // peak bytes of a run of them
  std::size_t predicted =
      0;         // what the line said before that run; of the first runs what they took
  int runs = 0;  // dry runs that were made
};

// The peak of bytes in use during a dry run of so many rows, everything counted that is there
// anyway. May throw OutOfMemory, or std::bad_alloc, for more rows than there is memory for.
using PeakOf = std::function<std::size_t(std::int64_t rows)>;

// The most rows, of `least` to `most`, whose peak stays within `limit` bytes, or up to 1/32 of
// these bytes less. Throws std::invalid_argument, with bytes, when `least` rows do not fit.
RowFit fit_rows(const PeakOf& peak_of, std::int64_t least, std::int64_t most, std::size_t limit);

}  // namespace sotto::memory
