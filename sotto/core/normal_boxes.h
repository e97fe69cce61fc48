// Exact normal magnitudes by rejection from boxes, with integers alone (docs/privacy.md, "The
// noise"). The half line is cut into strips; a magnitude y is in units of a strip's width, and its
// density is proportional to exp(-lambda y^2). The area under the curve is covered by 4096 boxes of
// the same area, one strip wide, stacked from the axis up. Most of them lie under the curve as a
// whole, so that a box and a place in it are a draw. In a box that the curve passes through, a
// uniform height decides, with as many bits as it takes (Karney 2016 draws normals so, from other
// proposals). Beyond the strips is a tail of its own.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

#include "sotto/core/fixed_point.h"

namespace sotto {

class NormalBoxes {
 public:
  // Independent uniform words.
  using Words = std::function<std::uint64_t()>;
  static constexpr int fraction_bits = 51;

  // For lambda 2^-72, which must be in [2^-11 (1 - 2^-49), 2^-9]: strips of 1/32 to 1/16 standard
  // deviations. Throws std::invalid_argument otherwise.
  explicit NormalBoxes(std::uint64_t lambda);

  // A word is a box (12 bits), a sign for others to use (1 bit), and a place in the strip.
  static constexpr bool negative(std::uint64_t word) { return (word >> fraction_bits & 1) != 0; }
  // Whether the word's box lies under the curve.
  bool certain(std::uint64_t word) const { return entry(word) < uncertain; }
  // The magnitude that the word stands for if its box is certain, or else accepted: the first 51
  // bits after the point of a real number, rounded down.
  std::uint64_t magnitude(std::uint64_t word) const {
    const std::uint64_t strip = entry(word) & strip_mask;
    return strip << fraction_bits | (word & place_mask);
  }
  // The magnitude of a draw that begins with `word`, certain or not, and takes more words as it
  // needs them. Its distribution has every probability within a factor of 1 +- 2^-80 of the one
  // said above; from 4112 strips on, over 128 deviations, nothing is drawn.
  std::uint64_t decide(std::uint64_t word, const Words& more) const;

  // Where the tail begins, in strips: between 3.5 and 3.6 standard deviations.
  int strips() const { return strips_; }
  // Words with one of these boxes, out of 4096, stand for draws from the tail.
  int first_tail_box() const { return first_box_[strips_]; }
  int tail_boxes() const { return first_box_[strips_ + 1] - first_box_[strips_]; }

 private:
  static constexpr int box_bits = 12;
  static constexpr int boxes = 1 << box_bits;
  static constexpr int most_strips = 112;  // 3.5 deviations of 32 strips
  static constexpr std::uint16_t strip_mask = 127, uncertain = 128;
  static constexpr std::uint64_t place_mask = (std::uint64_t{1} << fraction_bits) - 1;

  std::uint16_t entry(std::uint64_t word) const { return table_[word >> (64 - box_bits)]; }
  int count_boxes(int scale) const;
  void lay_boxes();
  bool accepts(std::uint64_t word, int strip, const Words& more) const;
  std::optional<std::uint64_t> tail(std::uint64_t word, const Words& more) const;

  Fixed128 lambda_;
  int strips_;
  int scale_ = 0;                                           // the curve's height at 0, in boxes
  std::array<Fixed128, most_strips + 1> height_{};          // of the curve left of each strip
  std::array<std::uint16_t, most_strips + 2> first_box_{};  // of each strip, and of the tail
  std::array<std::uint16_t, boxes> table_{};                // strip, and whether it is uncertain
  // Of the tail's proposals: docs/privacy.md.
  Fixed128 tail_height_, tail_slope_, tail_factor_;
};

}  // namespace sotto
