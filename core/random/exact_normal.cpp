#include "core/random/exact_normal.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace sotto {

namespace {

int ceiling(Fixed128 x) { return static_cast<int>((x + one128 - 1) >> 120); }

}  // namespace

ExactNormalSampler::ExactNormalSampler(std::uint64_t lambda) : lambda_(Fixed128{lambda} << 48) {
  constexpr std::uint64_t max = std::uint64_t{1} << 63, min = max / 4 - 4096;
  check(lambda >= min && lambda <= max, "exact normal: lambda is {} 2^-72", lambda);
  const double strips_in_deviation = std::sqrt(0x1p71 / static_cast<double>(lambda));
  strips_ = std::min(static_cast<int>(std::ceil(3.5 * strips_in_deviation)), max_strips);
  for (unsigned i = 0; i <= static_cast<unsigned>(strips_); ++i) {
    height_[i] = exp_minus_large(lambda_ * i * i);
  }
  while (count_boxes(scale_ + 1) <= boxes) ++scale_;
  for (Fixed128& height : height_) height *= static_cast<unsigned>(scale_);
  tail_height_ = height_[strips_] * 2 * block;
  tail_slope_ = lambda_ * static_cast<unsigned>(strips_) * 2 * block;
  tail_factor_ = 2 * exp_minus_large(tail_slope_);
  lay_boxes();
  draw_chords();
}

// Bounds the distance of curve and chord. Over an interval of length 1 a curve is within max |f''|
// / 8 of its chord, and the second derivative of a exp(-lambda y^2) is at most 2 lambda a. The
// remaining terms bound the rounding down: of a position by 2^-24 of the fall, which is less than
// 2^4 boxes, and of five numbers by 1 each.
void ExactNormalSampler::draw_chords() {
  constexpr int drop = 120 - chord_bits;
  const auto times = static_cast<unsigned>(scale_);
  off_chord_ = static_cast<std::int64_t>(lambda_ * times / 4 >> drop) +
               (std::int64_t{1} << (chord_bits + 4 - chord_place_bits)) + 5;
  for (int i = 0; i < strips_; ++i) {
    chord_[i] = static_cast<std::int64_t>(height_[i] >> drop);
    fall_[i] = static_cast<std::int64_t>((height_[i] - height_[i + 1]) >> drop);
  }
}

// The number of boxes that cover the curve if its height at 0 is `scale` boxes.
int ExactNormalSampler::count_boxes(int scale) const {
  const auto times = static_cast<unsigned>(scale);
  int count = ceiling(height_[strips_] * times * 2 * block);
  for (int i = 0; i < strips_; ++i) count += ceiling(height_[i] * times);
  return count;
}

// Fills the table: the boxes of each strip are consecutive, then come those of the tail, then boxes
// that are never accepted.
void ExactNormalSampler::lay_boxes() {
  std::fill(table_.begin(), table_.end(), static_cast<std::uint16_t>(uncertain | strip_mask));
  int box = 0;
  const auto lay = [&](int strip, int all, int certain) {
    first_box_[strip] = static_cast<std::uint16_t>(box);
    for (int level = 0; level < all; ++level) {
      table_[box++] = static_cast<std::uint16_t>(strip | (level < certain ? 0 : uncertain));
    }
  };
  for (int i = 0; i < strips_; ++i) {
    lay(i, ceiling(height_[i]), static_cast<int>(height_[i + 1] >> 120));
  }
  lay(strips_, ceiling(tail_height_), 0);
  first_box_[strips_ + 1] = static_cast<std::uint16_t>(box);
}

}  // namespace sotto
