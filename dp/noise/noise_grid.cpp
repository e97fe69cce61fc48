#include "dp/noise/noise_grid.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <memory>

#include "core/error.h"
#include "core/random/rounded_gaussian.h"
#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// Elements that are processed together, so that their sums stay in the first-level cache.
constexpr std::size_t group = 512;

// on_grid() for a group whose sums and noise are all below 2^51 spacings, in doubles, which are
// exact there: adding 1.5 2^52 leaves an integer, halves to even, in the last 51 bits. Returns
// false, with nothing written, if a number is larger or NaN.
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

// Returns whether all results of add_small() are finite: at most 2^52 spacings, divided.
bool small_is_finite(const NoiseGrid& grid, double divisor) {
  return 0x1p52 * grid.spacing / divisor < 0x1p127;
}

// Returns whether all results are known to be finite.
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

NoiseGrid noise_grid(double noise_multiplier, double sensitivity, std::int64_t elements) {
  check(noise_multiplier > 0 && sensitivity > 0 && elements > 0,
        "noise grid: noise multiplier {}, sensitivity {}, {} elements", noise_multiplier,
        sensitivity, elements);
  const double share = rounding_share * sensitivity * std::min(noise_multiplier, 1.0);
  const int exponent = std::ilogb(share / std::sqrt(static_cast<double>(elements)));
  constexpr int min = -1000, max = 960;
  check(exponent >= min && exponent <= max,
        "noise grid: sensitivity {} with noise multiplier {} is out of range", sensitivity,
        noise_multiplier);
  // Exceeds all roundings here, those in the exponent included, which are below 2^-50.
  constexpr double slack = 0x1p-45;
  const double enlarged = std::ldexp(sensitivity, -exponent) * (1 + rounding_share + slack);
  const double stddev = noise_multiplier * enlarged;
  check(stddev < RoundedGaussian::stddev_limit,
        "noise grid: a noise multiplier of {} is too large for {} elements", noise_multiplier,
        elements);
  return {std::ldexp(1.0, exponent), stddev};
}

void add_on_grid(const Gradients& sums, const Gradients& released, const NoiseGrid& grid,
                 double divisor, const WholeNoise& draw, const OnBlockReady& finished) {
  std::int64_t first = 0, max = 0;
  for (const auto& [parameter, total] : sums)
    max = std::max(max, std::min(total.numel(), noise_block_size));
  const auto draws = std::make_unique_for_overwrite<std::int64_t[]>(static_cast<std::size_t>(max));
  for (std::size_t k = 0; k < sums.size(); ++k) {
    const auto& [parameter, total] = sums[k];
    const Tensor& result = released[k].second;
    // Sums on a GPU are copied to the CPU for its noise, and back as a whole.
    const bool here = result.device() == cpu, in_place = here && result.contiguous();
    const Tensor from = contiguous(total).to(cpu);
    const Tensor flat = in_place ? result : Tensor::empty(total.shape(), result.dtype());
    for (std::int64_t at = 0; at < total.numel(); at += noise_block_size) {
      const auto count = static_cast<std::size_t>(std::min(total.numel() - at, noise_block_size));
      const std::span noise = draw(first + at, std::span(draws.get(), count));
      bool finite = false;
      const auto add = [&]<class S, class T>(std::type_identity<S>, std::type_identity<T>) {
        finite = add_noise(std::span<const S>(from.data<S>() + at, count), flat.data<T>() + at,
                           grid, divisor, noise);
      };
      const std::type_identity<double> wide;
      const std::type_identity<float> narrow;
      if (result.dtype() == Dtype::f64) {
        add(wide, wide);
      } else if (total.dtype() == Dtype::f64) {
        add(wide, narrow);
      } else {
        add(narrow, narrow);
      }
      const std::int64_t end = at + static_cast<std::int64_t>(count);
      if (finished && here) finished(parameter, flat.view_as({-1}).value(), at, end, finite);
    }
    first += total.numel();
    if (!in_place) copy_into(flat, result);
    if (finished && !here)
      finished(parameter, contiguous(result).view_as({-1}).value(), 0, total.numel(), false);
  }
}

}  // namespace sotto
