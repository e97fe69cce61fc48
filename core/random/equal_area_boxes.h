// The boxes from which ExactNormalSampler samples (exact_normal.h), as numbers that are computed
// once. Device code can include this header.
#pragma once

#include <array>
#include <cstdint>

#include "core/random/fixed_point.h"

namespace sotto {

struct EqualAreaBoxes {
  static constexpr int bits = 12, count = 1 << bits;
  static constexpr int max_strips = 112;  // 3.5 standard deviations of 32 strips
  // Proposals of the tail are blocks of 8 strips, each half as likely as the one before.
  static constexpr int block = 8, max_blocks = 500;
  static constexpr int chord_bits = 32, chord_place_bits = 24;

  Fixed128 lambda = 0;
  int strips = 0;
  std::array<Fixed128, max_strips + 1> height{};  // of the curve at each strip's left end, in boxes
  // The chord between the curve's heights at a strip's two ends, in 2^-32 of a box: its height at
  // the left end, and its fall; and a bound on the distance of curve and chord as stored.
  std::array<std::int64_t, max_strips> chord{}, fall{};
  std::int64_t off_chord = 0;
  std::array<std::uint16_t, max_strips + 2> first_box{};  // of each strip, and of the tail
  std::array<std::uint16_t, count + 1> table{};           // ExactNormalSampler::entries()
  // Constants of the tail's proposals: docs/appendix/proofs-noise.md.
  Fixed128 tail_height = 0, tail_slope = 0, tail_factor = 0;
};

}  // namespace sotto
