#include "dp/noise/noise_grid.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "core/error.h"
#include "core/random/rounded_gaussian.h"
#include "core/tensor.h"
#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/host_device/optimizer_update.h"

namespace sotto {

namespace {

// The number of elements processed together, so that their sums stay in the first-level cache.
constexpr std::size_t group = 512;

// Computes add_on_grid() for a group whose sums and noise are all below 2^51 spacings, in f64,
// which is exact there: adding 1.5 * 2^52 rounds to a whole number, halves to even. Returns false
// without writing if a sum or noise is larger or a sum is NaN.
template <class S, class T>
bool add_small(std::span<const S> sum, T* y, const NoiseGrid& grid, double divisor,
               const std::int64_t* noise) {
  constexpr double whole = 0x1.8p52, limit = 0x1p51;
  constexpr auto limit_bits = std::uint64_t{1} << 51, whole_bits = std::uint64_t{0x4338} << 48;
  double released[group];
  std::uint64_t outside = 0;
  const double spacing = grid.spacing, in_spacings = 1 / spacing;
  simd_dispatch([&, size = sum.size(), values = sum.data(), noise, spacing, divisor] {
    std::uint64_t beyond = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const double x = static_cast<double>(values[i]) * in_spacings;
      const auto n = static_cast<std::uint64_t>(noise[i]);
      beyond |= (std::abs(x) < limit ? 0 : 1) | (n + limit_bits) >> 52;
      const double drawn = std::bit_cast<double>(n + whole_bits) - whole;
      released[i] = ((x + whole) - whole + drawn) * spacing / divisor;
    }
    outside = beyond;
    if (beyond != 0) return;
    for (std::size_t i = 0; i < size; ++i) y[i] = static_cast<T>(released[i]);
  });
  return outside == 0;
}

template <class S, class T>
void add_any(std::span<const S> sum, T* y, const NoiseGrid& grid, double divisor,
             const std::int64_t* noise) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    check(!std::isnan(sum[i]), "release: a sum is not a number");
    y[i] = on_grid<T>(sum[i], noise[i], grid.spacing, divisor);
  }
}

// True if every result of add_small(), which is at most 2^52 spacings, is finite after the
// division.
bool small_is_finite(const NoiseGrid& grid, double divisor) {
  return 0x1p52 * grid.spacing / divisor < 0x1p127;
}

// Computes add_on_grid() for one group. Returns true if all results are known to be finite.
template <class S, class T>
bool add_noise(std::span<const S> sum, T* y, const NoiseGrid& grid, double divisor,
               std::span<const std::int64_t> noise) {
  constexpr std::int64_t grain = 1 << 13;
  std::atomic<bool> finite = small_is_finite(grid, divisor);
  parallel_for(std::ssize(sum), grain, [&](std::int64_t begin, std::int64_t end) {
    for (auto at = static_cast<std::size_t>(begin); at < static_cast<std::size_t>(end);) {
      const auto part = sum.subspan(at, std::min(group, static_cast<std::size_t>(end) - at));
      if (!add_small(part, y + at, grid, divisor, &noise[at])) {
        finite = false;
        add_any(part, y + at, grid, divisor, &noise[at]);
      }
      at += part.size();
    }
  });
  return finite;
}

}  // namespace

std::int64_t NoiseGrid::rounded(double value) const { return nearest_multiple(value, spacing); }

NoiseGrid noise_grid(double noise_multiplier, double sensitivity, std::int64_t elements) {
  check(noise_multiplier > 0 && sensitivity > 0 && elements > 0,
        "noise grid: noise multiplier {}, sensitivity {}, {} elements", noise_multiplier,
        sensitivity, elements);
  const double share = rounding_share * sensitivity * std::min(noise_multiplier, 1.0);
  const int exponent = std::ilogb(share / std::sqrt(static_cast<double>(elements)));
  constexpr int min_exponent = -1000, max_exponent = 960;
  check(exponent >= min_exponent && exponent <= max_exponent,
        "noise grid: sensitivity {} with noise multiplier {} is out of range", sensitivity,
        noise_multiplier);
  // The slack exceeds the relative rounding error of all operations here, which is below 2^-50.
  constexpr double slack = 0x1p-45;
  const double enlarged = std::ldexp(sensitivity, -exponent) * (1 + rounding_share + slack);
  const double stddev = noise_multiplier * enlarged;
  check(stddev < RoundedGaussian::stddev_limit,
        "noise grid: a noise multiplier of {} is too large for {} elements", noise_multiplier,
        elements);
  return {std::ldexp(1.0, exponent), stddev};
}

bool add_on_grid(const Tensor& from, const Tensor& to, std::int64_t first,
                 std::span<const std::int64_t> noise, const NoiseGrid& grid, double divisor) {
  const auto add = [&]<class S, class T>(std::type_identity<S>, std::type_identity<T>) {
    return add_noise(std::span<const S>(from.data<S>() + first, noise.size()), to.data<T>() + first,
                     grid, divisor, noise);
  };
  const std::type_identity<double> f64;
  const std::type_identity<float> f32;
  if (to.dtype() == Dtype::f64) return add(f64, f64);
  return from.dtype() == Dtype::f64 ? add(f64, f32) : add(f32, f32);
}

}  // namespace sotto
