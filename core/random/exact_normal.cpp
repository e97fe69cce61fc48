#include "core/random/exact_normal.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace sotto {

namespace {

int ceiling(Fixed128 x) { return static_cast<int>((x + one128 - 1) >> 120); }

// The number of boxes that cover the curve if its height at 0, now 1, is `scale` boxes.
int count_boxes(const EqualAreaBoxes& boxes, int scale) {
  const auto times = static_cast<unsigned>(scale);
  int count = ceiling(boxes.height[boxes.strips] * times * 2 * EqualAreaBoxes::block);
  for (int i = 0; i < boxes.strips; ++i) count += ceiling(boxes.height[i] * times);
  return count;
}

// Fills the table: the boxes of each strip are consecutive, then come those of the tail, then boxes
// that are never accepted.
void lay_boxes(EqualAreaBoxes& boxes) {
  constexpr std::uint16_t uncertain = ExactNormalSampler::uncertain;
  std::fill(boxes.table.begin(), boxes.table.end(),
            static_cast<std::uint16_t>(uncertain | ExactNormalSampler::strip_mask));
  int box = 0;
  const auto lay = [&](int strip, int all, int certain) {
    boxes.first_box[strip] = static_cast<std::uint16_t>(box);
    for (int level = 0; level < all; ++level) {
      boxes.table[box++] = static_cast<std::uint16_t>(strip | (level < certain ? 0 : uncertain));
    }
  };
  for (int i = 0; i < boxes.strips; ++i) {
    lay(i, ceiling(boxes.height[i]), static_cast<int>(boxes.height[i + 1] >> 120));
  }
  lay(boxes.strips, ceiling(boxes.tail_height), 0);
  boxes.first_box[boxes.strips + 1] = static_cast<std::uint16_t>(box);
}

// Bounds the distance of curve and chord. Over an interval of length 1 a curve is within max |f''|
// / 8 of its chord, and the second derivative of a exp(-lambda y^2) is at most 2 lambda a. The
// remaining terms bound the rounding down: of a position by 2^-24 of the fall, which is less than
// 2^4 boxes, and of five numbers by 1 each.
void draw_chords(EqualAreaBoxes& boxes, int scale) {
  constexpr int chord_bits = EqualAreaBoxes::chord_bits, drop = 120 - chord_bits;
  const auto times = static_cast<unsigned>(scale);
  boxes.off_chord = static_cast<std::int64_t>(boxes.lambda * times / 4 >> drop) +
                    (std::int64_t{1} << (chord_bits + 4 - EqualAreaBoxes::chord_place_bits)) + 5;
  for (int i = 0; i < boxes.strips; ++i) {
    boxes.chord[i] = static_cast<std::int64_t>(boxes.height[i] >> drop);
    boxes.fall[i] = static_cast<std::int64_t>((boxes.height[i] - boxes.height[i + 1]) >> drop);
  }
}

}  // namespace

ExactNormalSampler::ExactNormalSampler(std::uint64_t lambda) {
  constexpr std::uint64_t max = std::uint64_t{1} << 63, min = max / 4 - 4096;
  check(lambda >= min && lambda <= max, "exact normal: lambda is {} 2^-72", lambda);
  boxes_.lambda = Fixed128{lambda} << 48;
  const double strips_in_deviation = std::sqrt(0x1p71 / static_cast<double>(lambda));
  boxes_.strips =
      std::min(static_cast<int>(std::ceil(3.5 * strips_in_deviation)), EqualAreaBoxes::max_strips);
  const auto strips = static_cast<unsigned>(boxes_.strips);
  for (unsigned i = 0; i <= strips; ++i) boxes_.height[i] = exp_minus_large(boxes_.lambda * i * i);
  int scale = 0;  // height of the curve at 0, in boxes
  while (count_boxes(boxes_, scale + 1) <= EqualAreaBoxes::count) ++scale;
  for (Fixed128& height : boxes_.height) height *= static_cast<unsigned>(scale);
  boxes_.tail_height = boxes_.height[strips] * 2 * EqualAreaBoxes::block;
  boxes_.tail_slope = boxes_.lambda * strips * 2 * EqualAreaBoxes::block;
  boxes_.tail_factor = 2 * exp_minus_large(boxes_.tail_slope);
  lay_boxes(boxes_);
  draw_chords(boxes_, scale);
}

}  // namespace sotto
