// The grid on which a noisy sum is released; docs/appendix/proofs-noise.md, "The noise", proves
// that rounding to it costs no privacy.
#pragma once

#include <cstdint>
#include <span>

namespace sotto {
class Tensor;
}  // namespace sotto

namespace sotto {

// The maximum that rounding adds to the sensitivity, relative to it.
inline constexpr double rounding_share = 0x1p-20;

// The multiples of `spacing`, a power of two.
struct NoiseGrid {
  double spacing = 1;  // a power of two
  double stddev = 0;   // standard deviation of the noise, in spacings

  bool operator==(const NoiseGrid&) const = default;
  // The nearest multiple of the spacing, as a number of spacings. A value more than 2^61 spacings
  // from 0 counts as that far. Not for NaN.
  std::int64_t rounded(double value) const;
};

// The grid for a sum of `elements` elements that one unit changes by at most `sensitivity` in the
// L2 norm. Rounding every element moves the sums of neighbouring data sets apart by at most spacing
// * sqrt(elements); the spacing is the largest power of two for which this is within rounding_share
// of the sensitivity, and of the noise's standard deviation if that is smaller. The standard
// deviation is noise_multiplier times the sensitivity with that share added. Throws
// std::invalid_argument unless the arguments are positive, the standard deviation is below 2^55
// spacings and the spacing within [2^-1000, 2^960].
NoiseGrid noise_grid(double noise_multiplier, double sensitivity, std::int64_t elements);

// The maximum number of elements of one parameter for which noise is drawn together.
inline constexpr std::int64_t noise_block_size = std::int64_t{1} << 16;  // 512 KiB, in the cache

// Adds noise to one block of a sum. For k = 0 .. noise.size() - 1, element first + k of `to`
// becomes that of `from`, rounded to the nearest multiple of the spacing, plus noise[k] spacings,
// divided by `divisor`. Both tensors are contiguous, on the CPU, and may be one tensor; if `to` is
// f32, `from` is f32 or f64. An infinite element counts as the largest finite one. Returns true if
// all results are known to be finite. Throws std::invalid_argument for an element that is NaN.
bool add_on_grid(const Tensor& from, const Tensor& to, std::int64_t first,
                 std::span<const std::int64_t> noise, const NoiseGrid& grid, double divisor);

}  // namespace sotto
