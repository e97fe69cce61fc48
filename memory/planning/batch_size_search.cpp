#include "memory/planning/batch_size_search.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/error.h"
#include "memory/physical_batches.h"

namespace sotto::memory {

namespace {

constexpr int max_runs = 12;
constexpr double close_enough = 31.0 / 32;  // fraction of the limit at which the search stops

std::optional<std::size_t> peak(const PeakOf& peak_of, std::int64_t rows) {
  try {
    return peak_of(rows);
  } catch (const std::exception& error) {
    if (!out_of_memory(error)) throw;
    return std::nullopt;
  }
}

class Search {
 public:
  Search(const PeakOf& peak_of, std::int64_t max, std::size_t limit)
      : peak_of_(peak_of), limit_(static_cast<double>(limit)), beyond_(max + 1) {}

  void run(std::int64_t rows) {
    const std::optional<std::size_t> bytes = peak(peak_of_, rows);
    ++best_.runs;
    const bool fits = bytes && static_cast<double>(*bytes) <= limit_;
    if (fits) {
      const std::size_t predicted = runs_.size() < 2 ? *bytes : line(rows);
      best_ = {rows, *bytes, predicted, best_.runs};
    } else {
      beyond_ = rows;
    }
    known_ = bytes.has_value();
    if (known_) runs_.push_back({static_cast<double>(rows), static_cast<double>(*bytes)});
  }
  bool over() const {
    return best_.rows + 1 >= beyond_ || best_.runs >= max_runs ||
           static_cast<double>(best_.measured) >= close_enough * limit_;
  }
  // Returns where the line through the last two runs meets the limit, between the bounds known so
  // far; their middle after a run that ran out of memory.
  std::int64_t next() const {
    if (!known_) return (best_.rows + beyond_) / 2;
    const double rows = slope() > 0 ? runs_.back().rows + (limit_ - runs_.back().bytes) / slope()
                                    : static_cast<double>(beyond_);
    return static_cast<std::int64_t>(
        std::clamp(rows, static_cast<double>(best_.rows + 1), static_cast<double>(beyond_ - 1)));
  }
  const BatchSizeSearch& best() const { return best_; }
  std::size_t first_bytes() const {
    return runs_.empty() ? 0 : static_cast<std::size_t>(runs_[0].bytes);
  }

 private:
  struct Run {
    double rows, bytes;
  };
  double slope() const {
    if (runs_.size() < 2) return 0;
    const Run a = runs_.end()[-2], b = runs_.back();
    return (b.bytes - a.bytes) / (b.rows - a.rows);
  }
  std::size_t line(std::int64_t rows) const {
    const double bytes =
        runs_.back().bytes + slope() * (static_cast<double>(rows) - runs_.back().rows);
    return static_cast<std::size_t>(std::max(0.0, bytes));
  }

  const PeakOf& peak_of_;
  double limit_;
  std::int64_t beyond_;  // the smallest number of rows known not to fit
  bool known_ = true;    // whether the last run's bytes are known
  std::vector<Run> runs_;
  BatchSizeSearch best_;
};

}  // namespace

BatchSizeSearch largest_batch_that_fits(const PeakOf& peak_of, std::int64_t min, std::int64_t max,
                                        std::size_t limit) {
  check(min >= 1 && max >= min, "largest_batch_that_fits: from {} to {} rows", min, max);
  Search search(peak_of, max, limit);
  search.run(min);
  if (search.best().rows == 0) return {.measured = search.first_bytes(), .runs = 1};
  if (!search.over()) search.run(std::min(max, 2 * min));
  while (!search.over()) search.run(search.next());
  return search.best();
}

}  // namespace sotto::memory
