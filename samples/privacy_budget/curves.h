// Curves around an answer: epsilon over steps, over delta, over noise.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "samples/privacy_budget/accounting.h"
#include "samples/privacy_budget/progress.h"
#include "samples/report/curve_chart.h"

namespace sotto::budget {

// One curve: a method, a relation and a training.
struct Series {
  std::string name;
  Method method;
  NeighboringRelation relation;
  // The first `steps` steps, with the noise multiplied.
  std::function<History(std::int64_t steps, double noise)> history;
  int colour = 0;
};

struct CurveQuestion {
  std::vector<Series> series{};
  std::int64_t steps = 0;  // of the whole training
  double noise = 1;        // the noise multiplier, or 1 if the noise is relative
  bool relative_noise = true;
  double delta = 0;
};

// The three charts of upper bounds (for gdp, of the limit). Counts its points as progress.
std::vector<CurveChart> privacy_curves(const CurveQuestion& question, Progress& progress);

}  // namespace sotto::budget
