// How the benchmarks take time.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>

namespace sotto {

// The shortest of several runs, after one that warms up.
inline double fastest_seconds(const std::function<void()>& run, int repetitions = 15) {
  run();
  double best = 1e9;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
  }
  return best;
}

}  // namespace sotto
