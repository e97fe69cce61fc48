// Multiply-adds in single precision from registers, by the processor's widest vector unit: the
// ceiling of matrix products.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace sotto {

struct FmaUnit {
  const char* name;
  int lanes, chains;
  float (*run)();  // null if no unit is known
};

// Independent chains: enough to hide the latency of a multiply-add, in half or three quarters of
// the registers.
inline constexpr int chains_512 = 16, chains_256 = 12;
inline constexpr std::int64_t fma_rounds = 4'000'000;

#if defined(__x86_64__)

[[gnu::target("avx512f")]] inline float fma_512() {
  __m512 sums[chains_512];
  const __m512 a = _mm512_set1_ps(0.999999F), b = _mm512_set1_ps(1e-6F);
  for (__m512& sum : sums) sum = _mm512_set1_ps(1);
  for (std::int64_t k = 0; k < fma_rounds; ++k) {
#pragma GCC unroll 16
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, a, b);
  }
  float lanes[16] = {};
  for (const __m512& sum : sums)
    _mm512_storeu_ps(lanes, _mm512_add_ps(_mm512_loadu_ps(lanes), sum));
  return lanes[0];
}

[[gnu::target("avx2,fma")]] inline float fma_256() {
  __m256 sums[chains_256];
  const __m256 a = _mm256_set1_ps(0.999999F), b = _mm256_set1_ps(1e-6F);
  for (__m256& sum : sums) sum = _mm256_set1_ps(1);
  for (std::int64_t k = 0; k < fma_rounds; ++k) {
#pragma GCC unroll 16
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, a, b);
  }
  float lanes[8] = {};
  for (const __m256& sum : sums)
    _mm256_storeu_ps(lanes, _mm256_add_ps(_mm256_loadu_ps(lanes), sum));
  return lanes[0];
}

inline FmaUnit widest_fma() {
  if (__builtin_cpu_supports("avx512f")) return {"AVX-512", 16, chains_512, fma_512};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {"AVX2", 8, chains_256, fma_256};
  return {"none", 0, 0, nullptr};
}

#else

inline FmaUnit widest_fma() { return {"none", 0, 0, nullptr}; }

#endif

// Calls work(k) in this many threads at once.
inline void on_threads(int threads, const std::function<void(int)>& work) {
  std::vector<std::thread> team;
  for (int k = 0; k < threads; ++k) team.emplace_back(work, k);
  for (std::thread& member : team) member.join();
}

// Keeps the unit of each thread busy for some hundredths of a second; returns its operations, two
// for each multiply-add.
inline double run_fma(const FmaUnit& unit, int threads) {
  std::vector<float> results(static_cast<std::size_t>(threads));
  on_threads(threads, [&](int k) { results[static_cast<std::size_t>(k)] = unit.run(); });
  return 2.0 * unit.lanes * unit.chains * fma_rounds * threads;
}

}  // namespace sotto
