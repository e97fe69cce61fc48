#include "nn/data/images/lane_fft.h"

#include <cmath>
#include <numbers>

#include "core/error.h"

namespace sotto {

namespace {

// Odd primes first: the stage that comes first has no twiddles, and theirs are the most.
std::vector<std::int64_t> radices(std::int64_t n) {
  std::vector<std::int64_t> y;
  std::int64_t odd = n;
  while (odd % 2 == 0) odd /= 2;
  std::int64_t even = n / odd;
  for (std::int64_t prime = 3; odd > 1; prime += 2) {
    for (; odd % prime == 0; odd /= prime) y.push_back(prime);
  }
  for (; even % 4 == 0; even /= 4) y.push_back(4);
  if (even == 2) y.push_back(2);
  return y;
}

std::array<float, 2> rounded(std::complex<double> z) {
  return {static_cast<float>(z.real()), static_cast<float>(z.imag())};
}

}  // namespace

std::complex<double> unit_root(double turns) {
  return std::polar(1.0, 2 * std::numbers::pi * turns);
}

LaneFft::LaneFft(std::int64_t n) {
  check(n >= 1, "lane_fft: a transform of {} points", n);
  // The transforms that the stages so far make of the points at multiples of n / m.
  order_ = {0};
  std::int64_t m = 1;
  for (const std::int64_t radix : radices(n)) {
    check(radix <= max_radix, "lane_fft: {} points: the prime {} is above {}", n, radix, max_radix);
    FftStage stage{radix, m, {}, {}};
    for (std::int64_t k = 0; k < m; ++k) {
      for (std::int64_t q = 0; q < radix; ++q) {
        const double turns = static_cast<double>(k * q) / static_cast<double>(radix * m);
        stage.twiddles.push_back(rounded(unit_root(-turns)));
      }
    }
    for (std::int64_t k = 0; k < radix; ++k) {
      const double turns = static_cast<double>(k) / static_cast<double>(radix);
      stage.roots.push_back(rounded(unit_root(turns)));
    }
    stages_.push_back(std::move(stage));
    m *= radix;
    std::vector<std::int64_t> joined;
    for (std::int64_t q = 0; q < radix; ++q) {
      for (const std::int64_t at : order_) joined.push_back(at * radix + q);
    }
    order_ = std::move(joined);
  }
}

}  // namespace sotto
