// Timing for the benchmarks.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

namespace sotto {

inline double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The shortest of several runs, after a warm-up run.
inline double fastest_seconds(const std::function<void()>& run, int repetitions = 15) {
  run();
  double best = 1e9;
  for (int i = 0; i < repetitions; ++i) best = std::min(best, seconds_of(run));
  return best;
}

// The median; of an even number the greater of the middle two.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace sotto
