// The grid on which a noisy sum is released; docs/appendix/proofs-noise.md, "The noise", proves
// that rounding to it costs no privacy.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "autograd/parameter.h"
#include "kernels/host_device/optimizer_update.h"

namespace sotto {

// The maximum that rounding adds to the sensitivity, relative to it.
inline constexpr double rounding_share = 0x1p-20;

// The multiples of `spacing`, a power of two.
struct NoiseGrid {
  double spacing = 1;
  double stddev = 0;  // standard deviation of the noise, in spacings

  bool operator==(const NoiseGrid&) const = default;
  // The nearest multiple of the spacing, in spacings; clamped to 2^61 spacings from 0. Not for NaN.
  std::int64_t rounded(double value) const { return nearest_multiple(value, spacing); }
};

// The grid for a sum of `elements` elements that one unit changes by at most `sensitivity` in the
// L2 norm. Rounding every element moves the sums of neighbouring data sets apart by at most spacing
// * sqrt(elements); the spacing is the largest power of two for which this is within rounding_share
// of the sensitivity, and of the noise's standard deviation if that is smaller. The standard
// deviation is noise_multiplier times the sensitivity with that share added. Depends on nothing
// else. Throws std::invalid_argument unless the arguments are positive, the standard deviation is
// below 2^55 spacings and the spacing within [2^-1000, 2^960].
NoiseGrid noise_grid(double noise_multiplier, double sensitivity, std::int64_t elements);

// The maximum number of elements of one parameter for which noise is drawn together.
inline constexpr std::int64_t noise_block_size = std::int64_t{1} << 16;  // 512 KiB, in the cache

// Draws noise, in spacings, for elements first, first + 1, ... (numbered over all parameters) of
// one parameter, as many as fit into `room`. Returns the draws, in `room` or in other memory.
using WholeNoise =
    std::function<std::span<const std::int64_t>(std::int64_t first, std::span<std::int64_t> room)>;

// Called when elements first .. end - 1 of a parameter's row-major tensor `flat` are finished;
// `finite` is true if they are known to be finite.
using OnBlockReady = std::function<void(const Parameter* parameter, const Tensor& flat,
                                        std::int64_t first, std::int64_t end, bool finite)>;

// Rounds every element to the nearest multiple of the spacing, adds the noise and divides by
// `divisor`. `released` has the sums' shapes and devices and may be the sums; if it is f32, the
// sums are f32 or f64. `draw` is called for every element once, in order, and `finished`, if set,
// for every block. An infinite sum counts as the largest finite one. Throws std::invalid_argument
// for a sum that is NaN.
void add_on_grid(const Gradients& sums, const Gradients& released, const NoiseGrid& grid,
                 double divisor, const WholeNoise& draw, const OnBlockReady& finished = {});

}  // namespace sotto
