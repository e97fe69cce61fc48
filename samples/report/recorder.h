// Collects the report's numbers about the training data. NOT private.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/ranks/ranks.h"
#include "dp/engine/engine.h"
#include "samples/report/report.h"

namespace sotto::samples {

// Numbers for the report that are NOT private: exact functions of the training data.
struct Statistics {
  struct Point {
    std::int64_t step = 0;
    double loss = 0;
    std::optional<double> clipped_fraction;
  };

  double seconds = 0;  // of training, over all runs
  std::vector<Point> points;
  std::vector<TrainingReport::NormHistogram> norms;
};

// Writes a file that only its owner can read.
void save_statistics(const std::string& path, const Statistics& statistics);
// Returns the file's contents up to `step`; empty when there is no file. Throws SystemFailure when
// it is damaged.
Statistics load_statistics(const std::string& path, std::int64_t step);

class Recorder {
 public:
  // Continues the statistics of an earlier run.
  explicit Recorder(Statistics earlier) : statistics_(std::move(earlier)) {}

  void add(const StepReport& report);
  // Adds to rank 0's interval what the others have added, and empties theirs. Collective.
  void gather(Ranks& ranks);
  // Ends the interval at `step`: adds one point and one histogram.
  void close(std::int64_t step);
  Statistics& statistics() { return statistics_; }
  const Statistics& statistics() const { return statistics_; }

 private:
  void clear();
  void close_norms(std::int64_t step, double clipped_fraction);

  Statistics statistics_;
  double clip_bound_ = 0;     // of all groups together, at the last step
  std::int64_t clipped_ = 0;  // units above the bound of some group
  std::int64_t steps_ = 0;    // of the interval
  double loss_sum_ = 0;
  std::int64_t rows_ = 0, units_ = 0;
  std::vector<double> norms_;  // finite norms over all groups
  bool clipping_ = false;
};

}  // namespace sotto::samples
