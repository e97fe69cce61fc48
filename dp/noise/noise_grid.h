// The grid that a noisy sum is released on: why rounding to it costs no privacy is in
// docs/privacy.md, "The noise".
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "autograd/parameter.h"
#include "kernels/host_device/optimizer_update.h"

namespace sotto {

// What rounding may add to the sensitivity, relative to it.
inline constexpr double rounding_share = 0x1p-20;

// The multiples of `spacing`, a power of two.
struct NoiseGrid {
  double spacing = 1;
  double deviation = 0;  // of the noise, in spacings

  bool operator==(const NoiseGrid&) const = default;
  // The nearest multiple of the spacing, as a number of spacings. What lies more than 2^61 spacings
  // from 0 counts as that far. Not for NaN.
  std::int64_t rounded(double value) const { return nearest_multiple(value, spacing); }
};

// For a sum of `elements` elements that one unit changes by at most `sensitivity` in the L2 norm.
// Rounding every element moves neighbouring sums apart by at most spacing * sqrt(elements); the
// spacing is the largest power of two for which that is within rounding_share of the sensitivity,
// and of the noise's standard deviation where that is smaller. The deviation is noise_multiplier
// times the sensitivity with that share added. Depends on nothing else. Throws
// std::invalid_argument unless the arguments are positive, the deviation is below 2^55 spacings and
// the spacing within [2^-1000, 2^960].
NoiseGrid noise_grid(double noise_multiplier, double sensitivity, std::int64_t elements);

// Elements of one parameter that noise is drawn for together, at most.
inline constexpr std::int64_t noise_block_size = std::int64_t{1} << 16;  // 512 KiB, in the cache

// Noise in spacings for the elements first, first + 1, ... of all parameters together, of one
// parameter's: as many as there is room for. Returns where it is, in `room` or elsewhere.
using WholeNoise =
    std::function<std::span<const std::int64_t>(std::int64_t first, std::span<std::int64_t> room)>;

// Elements first .. end - 1 of a parameter's `flat` tensor, row-major, are finished, and `finite`
// where that is known.
using OnBlockReady = std::function<void(const Parameter* parameter, const Tensor& flat,
                                        std::int64_t first, std::int64_t end, bool finite)>;

// Every element becomes the nearest multiple of the spacing plus so many spacings, divided by
// `divisor`, in `released`, which has the sums' shapes and devices and may be the sums; where it is
// f32 the sums are f32 or f64. `draw` is asked for every element once, in order, and `finished`, if
// there is one, told. An infinite sum counts as the largest finite one. Throws
// std::invalid_argument for a sum that is not a number.
void add_on_grid(const Gradients& sums, const Gradients& released, const NoiseGrid& grid,
                 double divisor, const WholeNoise& draw, const OnBlockReady& finished = {});

}  // namespace sotto
