// Measures the machine's ceilings: multiply-adds in single precision from registers, and memory
// bandwidth (triad a = b + s c, STREAM: McCalpin 1995). Prints one JSON line for each requested
// number of threads. compare_peers.py computes the floor of each training step from them.
#include <algorithm>
#include <cstdlib>
#include <iostream>

#include <nlohmann/json.hpp>

#include "tests/benchmarks/fma_peak.h"
#include "tests/benchmarks/timing.h"

using namespace sotto;

namespace {

constexpr int repetitions = 7;

double fma_flops_per_second(const FmaUnit& unit, int threads) {
  double flops = 0;
  const double seconds = fastest_seconds([&] { flops = run_fma(unit, threads); }, repetitions);
  return flops / seconds;
}

double triad_bytes_per_second(int threads) {
  constexpr std::int64_t elements = 32 << 20;  // 128 MiB an array: beyond any cache
  std::vector<float> a(elements), b(elements, 1), c(elements, 2);
  const auto part = [&](int k) {
    const std::int64_t end = elements * (k + 1) / threads;
    for (std::int64_t i = elements * k / threads; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      a[at] = b[at] + 3 * c[at];
    }
  };
  const double seconds = fastest_seconds([&] { on_threads(threads, part); }, repetitions);
  return 3.0 * sizeof(float) * elements / seconds;
}

}  // namespace

int main(int argc, char** argv) {
  const FmaUnit unit = widest_fma();
  if (!unit.run) {
    std::cerr << "roofline: no AVX2 or AVX-512 here\n";
    return 1;
  }
  std::vector<int> threads;
  for (int k = 1; k < argc; ++k) threads.push_back(std::max(1, std::atoi(argv[k])));
  if (threads.empty()) threads = {1, 2};
  for (const int count : threads) {
    const nlohmann::json line{{"threads", count},
                              {"unit", unit.name},
                              {"fma_gflops", fma_flops_per_second(unit, count) * 1e-9},
                              {"triad_gbytes", triad_bytes_per_second(count) * 1e-9}};
    std::cout << line.dump() << std::endl;
  }
}
