// Measures the machine's ceilings: multiply-adds in single precision from registers, and memory
// bandwidth (triad a = b + s c, STREAM: McCalpin 1995). Prints one JSON line for each number of
// threads asked for. compare_peers.py makes the floor of each training step of them.
#include <immintrin.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <thread>

#include <nlohmann/json.hpp>

#include "tests/benchmarks/timing.h"

namespace {

// Enough independent chains to hide the latency of a multiply-add.
constexpr int chains = 16;
constexpr std::int64_t rounds = 4'000'000;

__attribute__((target("avx512f"))) float fma_512() {
  __m512 sums[chains];
  const __m512 a = _mm512_set1_ps(0.999999F), b = _mm512_set1_ps(1e-6F);
  for (__m512& sum : sums) sum = _mm512_set1_ps(1);
  for (std::int64_t k = 0; k < rounds; ++k) {
#pragma GCC unroll 16
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, a, b);
  }
  float lanes[16] = {};
  for (const __m512& sum : sums)
    _mm512_storeu_ps(lanes, _mm512_add_ps(_mm512_loadu_ps(lanes), sum));
  return lanes[0];
}

__attribute__((target("avx2,fma"))) float fma_256() {
  __m256 sums[chains];
  const __m256 a = _mm256_set1_ps(0.999999F), b = _mm256_set1_ps(1e-6F);
  for (__m256& sum : sums) sum = _mm256_set1_ps(1);
  for (std::int64_t k = 0; k < rounds; ++k) {
#pragma GCC unroll 16
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, a, b);
  }
  float lanes[8] = {};
  for (const __m256& sum : sums)
    _mm256_storeu_ps(lanes, _mm256_add_ps(_mm256_loadu_ps(lanes), sum));
  return lanes[0];
}

struct Unit {
  const char* name;
  int lanes;
  float (*run)();
};

Unit widest() {
  if (__builtin_cpu_supports("avx512f")) return {"AVX-512", 16, fma_512};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {"AVX2", 8, fma_256};
  return {"none", 0, nullptr};
}

// The fastest of several runs of the same work in every thread.
double fastest_of_threads(int threads, const std::function<void(int)>& work) {
  return sotto::fastest_seconds(
      [&] {
        std::vector<std::thread> team;
        for (int k = 0; k < threads; ++k) team.emplace_back(work, k);
        for (std::thread& member : team) member.join();
      },
      7);
}

double fma_flops_per_second(const Unit& unit, int threads) {
  std::vector<float> results(static_cast<std::size_t>(threads));
  const double seconds = fastest_of_threads(
      threads, [&](int k) { results[static_cast<std::size_t>(k)] = unit.run(); });
  return 2.0 * unit.lanes * chains * rounds * threads / seconds;
}

double triad_bytes_per_second(int threads) {
  constexpr std::int64_t elements = 32 << 20;  // 128 MiB an array: beyond any cache
  std::vector<float> a(elements), b(elements, 1), c(elements, 2);
  const double seconds = fastest_of_threads(threads, [&](int k) {
    const std::int64_t end = elements * (k + 1) / threads;
    for (std::int64_t i = elements * k / threads; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      a[at] = b[at] + 3 * c[at];
    }
  });
  return 3.0 * sizeof(float) * elements / seconds;
}

}  // namespace

int main(int argc, char** argv) {
  const Unit unit = widest();
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
