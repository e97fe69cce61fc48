#include "sotto/core/normal_boxes.h"

#include <algorithm>
#include <cmath>

#include "sotto/core/error.h"

namespace sotto {

namespace {

using Words = NormalBoxes::Words;

// The tail's proposals are blocks of 8 strips, each half as likely as the one before.
constexpr int block = 8;
constexpr int most_blocks = 500;
constexpr Fixed128 quarter = one128 / 4;
constexpr Fixed128 quarter_factor = exp_minus(quarter);

enum class Verdict { below, above, open };

// Whether y < height e^-x, of which the 64 bits given are the beginning. Left open within 2^-22,
// which is more than all errors together: 2^-23 from the exponential times 256, 2^-40 from others.
Verdict compare(Fixed64 y, Fixed64 height, Fixed64 x) {
  constexpr Fixed64 slack = one64 >> 22;
  const Fixed64 curve = multiply(height, exp_minus(x));
  if (y + slack < curve) return Verdict::below;
  return y > curve + slack ? Verdict::above : Verdict::open;
}

// The same with 120 bits after the point. What they leave open, within 2^-102, counts as above;
// heights are right to 2^-103.
bool settle(Fixed128 y, Fixed128 height, Fixed128 x) {
  constexpr Fixed128 slack = one128 >> 102;
  return y + slack < multiply(height, exp_minus(x));
}

// `level` + u with the first 56 bits of a uniform u, and with 120 of them.
Fixed64 above_level(std::uint64_t level, std::uint64_t u) { return level << 56 | u >> 8; }
Fixed128 above_level(std::uint64_t level, std::uint64_t u, std::uint64_t rest) {
  return Fixed128{level} << 120 | Fixed128{u} << 56 | rest >> 8;
}

// Whether level + u < height e^-x for a fresh uniform u; x <= 1/4.
bool below(std::uint64_t level, Fixed128 height, Fixed128 x, const Words& more) {
  const std::uint64_t u = more();
  const Verdict verdict = compare(above_level(level, u), to_fixed64(height), to_fixed64(x));
  if (verdict != Verdict::open) return verdict == Verdict::below;
  return settle(above_level(level, u, more()), height, x);
}

// True with probability e^-x.
bool survives(Fixed128 x, const Words& more) {
  for (; x > quarter; x -= quarter) {
    if (!below(0, quarter_factor, 0, more)) return false;
  }
  return below(0, one128, x, more);
}

// lambda (y^2 - strip^2) for y = strip + place.
template <class Fixed>
Fixed exponent(Fixed lambda, Fixed strip, Fixed place) {
  return multiply(lambda, multiply(place, static_cast<Fixed>(2 * strip + place)));
}

// 51 bits of a place, and 64 more.
Fixed128 long_place(std::uint64_t place, std::uint64_t rest) {
  return Fixed128{place} << (120 - NormalBoxes::fraction_bits) | Fixed128{rest} << 5;
}

int ceiling(Fixed128 x) { return static_cast<int>((x + one128 - 1) >> 120); }

}  // namespace

NormalBoxes::NormalBoxes(std::uint64_t lambda) : lambda_(Fixed128{lambda} << 48) {
  constexpr std::uint64_t most = std::uint64_t{1} << 63, least = most / 4 - 4096;
  check(lambda >= least && lambda <= most, "normal boxes: lambda 2^-72 of {}", lambda);
  const double strips_in_deviation = std::sqrt(0x1p71 / static_cast<double>(lambda));
  strips_ = std::min(static_cast<int>(std::ceil(3.5 * strips_in_deviation)), most_strips);
  for (unsigned i = 0; i <= static_cast<unsigned>(strips_); ++i) {
    height_[i] = exp_minus_large(lambda_ * i * i);
  }
  while (count_boxes(scale_ + 1) <= boxes) ++scale_;
  for (Fixed128& height : height_) height *= static_cast<unsigned>(scale_);
  tail_height_ = height_[strips_] * 2 * block;
  tail_slope_ = lambda_ * static_cast<unsigned>(strips_) * 2 * block;
  tail_factor_ = 2 * exp_minus_large(tail_slope_);
  lay_boxes();
}

// How many boxes cover the curve, when its height at 0 is `scale` of them.
int NormalBoxes::count_boxes(int scale) const {
  const auto times = static_cast<unsigned>(scale);
  int count = ceiling(height_[strips_] * times * 2 * block);
  for (int i = 0; i < strips_; ++i) count += ceiling(height_[i] * times);
  return count;
}

// The boxes of a strip lie side by side, then those of the tail, then some that are never accepted.
void NormalBoxes::lay_boxes() {
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

std::uint64_t NormalBoxes::decide(std::uint64_t word, const Words& more) const {
  for (;; word = more()) {
    if (certain(word)) return magnitude(word);
    const int strip = entry(word) & strip_mask;
    if (strip < strips_) {
      if (accepts(word, strip, more)) return magnitude(word);
    } else if (strip == strips_) {
      if (const auto drawn = tail(word, more)) return *drawn;
    }
  }
}

bool NormalBoxes::accepts(std::uint64_t word, int strip, const Words& more) const {
  const std::uint64_t level = (word >> (64 - box_bits)) - first_box_[strip];
  const std::uint64_t place = word & place_mask;
  const std::uint64_t u = more();
  const auto at = static_cast<std::uint64_t>(strip);
  const Fixed64 x = exponent(to_fixed64(lambda_), at << 56, place << (56 - fraction_bits));
  const Verdict verdict = compare(above_level(level, u), to_fixed64(height_[strip]), x);
  if (verdict != Verdict::open) return verdict == Verdict::below;
  const Fixed128 exact = exponent(lambda_, Fixed128{at} << 120, long_place(place, more()));
  return settle(above_level(level, u, more()), height_[strip], exact);
}

// Proposes y = strips + 8 (blocks + place) with probability 2^-(blocks + 1) for each number of
// blocks, and accepts it with probability 2^blocks exp(-lambda (y^2 - strips^2)), a factor for each
// block and one for the place; before that, with the part of the tail's boxes that is needed.
std::optional<std::uint64_t> NormalBoxes::tail(std::uint64_t word, const Words& more) const {
  const std::uint64_t level = (word >> (64 - box_bits)) - first_box_[strips_];
  if (!below(level, tail_height_, 0, more)) return {};
  const Fixed128 place = long_place(word & place_mask, more());
  const Fixed128 curvature = lambda_ * block * block;
  std::uint64_t blocks = 0;
  while (more() >> 63 != 0) {
    if (++blocks == most_blocks || !below(0, tail_factor_, 0, more)) return {};
    const Fixed128 odd = (2 * blocks - 1) * curvature;
    if (!survives(odd + 2 * multiply(curvature, place), more)) return {};
  }
  if (!survives(multiply(tail_slope_, place), more)) return {};
  if (!survives(multiply(curvature, multiply(place, place)), more)) return {};
  const std::uint64_t start = static_cast<std::uint64_t>(strips_) + block * blocks;
  constexpr int place_shift = 120 - fraction_bits - 3;  // 2^3 strips in a block
  return (start << fraction_bits) + static_cast<std::uint64_t>(place >> place_shift);
}

}  // namespace sotto
