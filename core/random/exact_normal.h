// Exact sampling of normal magnitudes by rejection from equal-area boxes, in integer arithmetic
// (docs/appendix/proofs-noise.md, "The noise").
//
// The half line is cut into strips; a magnitude y is in units of a strip's width, with density
// proportional to exp(-lambda y^2). 4096 boxes of equal area, one strip wide and stacked from the
// axis up, cover the area under the curve. Most boxes are entirely under the curve, so that a box
// and a position in it are a sample. In a box that the curve crosses, a uniform height decides,
// with as many bits as needed (as in Karney 2016, with other proposals). The tail beyond the strips
// has its own proposals. Device code can include this header.
#pragma once

#include <cstdint>
#include <optional>

#include "core/random/bernoulli_exp.h"
#include "core/random/equal_area_boxes.h"
#include "core/random/fixed_point.h"

namespace sotto {

// Samples normal magnitudes in fixed-point numbers; RoundedGaussian rounds them to integers.
class ExactNormalSampler {
 public:
  static constexpr int fraction_bits = 51;

  // lambda is given in units of 2^-72 and must be in [2^-11 (1 - 2^-49), 2^-9], which makes strips
  // of 1/32 to 1/16 standard deviations. Throws std::invalid_argument otherwise.
  explicit ExactNormalSampler(std::uint64_t lambda);

  // A word consists of a box (12 bits), a sign for the caller (1 bit) and a position in the strip.
  HD static constexpr bool negative(std::uint64_t word) { return (word >> fraction_bits & 1) != 0; }
  // True if the word's box is entirely under the curve, so that the word is accepted.
  HD bool certain(std::uint64_t word) const { return entry(word) < uncertain; }
  // The magnitude of an accepted word: the first 51 bits after the point of a real number, rounded
  // down.
  HD std::uint64_t magnitude(std::uint64_t word) const {
    const std::uint64_t strip = entry(word) & strip_mask;
    return strip << fraction_bits | (word & place_mask);
  }
  // The magnitude of a sample that begins with `word` and calls more() for further independent
  // uniform words as needed. Every probability is within a factor of 1 +- 2^-80 of the distribution
  // above; magnitudes from 4112 strips on (over 128 standard deviations) never occur.
  template <class Words>
  HD std::uint64_t decide(std::uint64_t word, Words&& more) const;

  // The number of strips, where the tail begins: 3.5 to 3.6 standard deviations.
  int strips() const { return boxes_.strips; }
  // The table of boxes: the strip of each, plus `uncertain` if it is not entirely under the curve.
  // One more entry follows, so that 32 bits can be read from each.
  const std::uint16_t* entries() const { return boxes_.table.data(); }
  static constexpr std::uint16_t strip_mask = 127, uncertain = 128;
  static constexpr int box_bits = EqualAreaBoxes::bits;
  static constexpr std::uint64_t place_mask = (std::uint64_t{1} << fraction_bits) - 1;

  // The boxes, out of 4096, that stand for samples from the tail.
  int first_tail_box() const { return boxes_.first_box[boxes_.strips]; }
  int tail_boxes() const { return boxes_.first_box[boxes_.strips + 1] - first_tail_box(); }

 private:
  HD std::uint16_t entry(std::uint64_t word) const { return boxes_.table[word >> (64 - box_bits)]; }
  // A position with 51 + 64 bits.
  HD static Fixed128 long_place(std::uint64_t place, std::uint64_t rest) {
    return Fixed128{place} << (120 - fraction_bits) | Fixed128{rest} << 5;
  }
  HD bernoulli_exp::Verdict beside_chord(std::uint64_t level, std::uint64_t u, int strip,
                                         std::uint64_t place) const;
  template <class Words>
  HD bool accepts(std::uint64_t word, int strip, Words& more) const;
  template <class Words>
  HD std::optional<std::uint64_t> tail(std::uint64_t word, Words& more) const;

  EqualAreaBoxes boxes_;
};

template <class Words>
HD std::uint64_t ExactNormalSampler::decide(std::uint64_t word, Words&& more) const {
  for (;; word = more()) {
    if (certain(word)) return magnitude(word);
    const int strip = entry(word) & strip_mask;
    if (strip < boxes_.strips) {
      if (accepts(word, strip, more)) return magnitude(word);
    } else if (strip == boxes_.strips) {
      if (const auto drawn = tail(word, more)) return *drawn;
    }
  }
}

// Compares level + u 2^-64 with the curve by the strip's chord; `open` if the chord cannot decide.
HD inline bernoulli_exp::Verdict ExactNormalSampler::beside_chord(std::uint64_t level,
                                                                  std::uint64_t u, int strip,
                                                                  std::uint64_t place) const {
  const auto at =
      static_cast<std::int64_t>(place >> (fraction_bits - EqualAreaBoxes::chord_place_bits));
  const auto height = static_cast<std::int64_t>(level << EqualAreaBoxes::chord_bits |
                                                u >> (64 - EqualAreaBoxes::chord_bits));
  const std::int64_t chord =
      boxes_.chord[strip] - (boxes_.fall[strip] * at >> EqualAreaBoxes::chord_place_bits);
  if (height < chord - boxes_.off_chord) return bernoulli_exp::Verdict::below;
  return height > chord + boxes_.off_chord ? bernoulli_exp::Verdict::above
                                           : bernoulli_exp::Verdict::open;
}

template <class Words>
HD bool ExactNormalSampler::accepts(std::uint64_t word, int strip, Words& more) const {
  const std::uint64_t level = (word >> (64 - box_bits)) - boxes_.first_box[strip];
  const std::uint64_t place = word & place_mask;
  const std::uint64_t u = more();
  const bernoulli_exp::Verdict soon = beside_chord(level, u, strip, place);
  if (soon != bernoulli_exp::Verdict::open) return soon == bernoulli_exp::Verdict::below;
  const auto at = static_cast<std::uint64_t>(strip);
  const Fixed64 x =
      bernoulli_exp::exponent(to_fixed64(boxes_.lambda), at << 56, place << (56 - fraction_bits));
  const bernoulli_exp::Verdict verdict = bernoulli_exp::compare(
      bernoulli_exp::above_level(level, u), to_fixed64(boxes_.height[strip]), x);
  if (verdict != bernoulli_exp::Verdict::open) return verdict == bernoulli_exp::Verdict::below;
  const Fixed128 exact =
      bernoulli_exp::exponent(boxes_.lambda, Fixed128{at} << 120, long_place(place, more()));
  return bernoulli_exp::decide(bernoulli_exp::above_level(level, u, more()), boxes_.height[strip],
                               exact);
}

// Samples the tail. It proposes y = strips + 8 (blocks + place), each number of blocks with
// probability 2^-(blocks + 1), and accepts y with probability 2^blocks exp(-lambda (y^2 -
// strips^2)): one factor per block and one for the place. Before that, it accepts the needed part
// of the tail's boxes.
template <class Words>
HD std::optional<std::uint64_t> ExactNormalSampler::tail(std::uint64_t word, Words& more) const {
  const std::uint64_t level = (word >> (64 - box_bits)) - boxes_.first_box[boxes_.strips];
  if (!bernoulli_exp::below(level, boxes_.tail_height, 0, more)) return {};
  const Fixed128 place = long_place(word & place_mask, more());
  const Fixed128 curvature = boxes_.lambda * EqualAreaBoxes::block * EqualAreaBoxes::block;
  std::uint64_t blocks = 0;
  while (more() >> 63 != 0) {
    if (++blocks == EqualAreaBoxes::max_blocks ||
        !bernoulli_exp::below(0, boxes_.tail_factor, 0, more))
      return {};
    const Fixed128 odd = (2 * blocks - 1) * curvature;
    if (!bernoulli_exp::sample(odd + 2 * multiply(curvature, place), more)) return {};
  }
  if (!bernoulli_exp::sample(multiply(boxes_.tail_slope, place), more)) return {};
  if (!bernoulli_exp::sample(multiply(curvature, multiply(place, place)), more)) return {};
  const std::uint64_t start =
      static_cast<std::uint64_t>(boxes_.strips) + EqualAreaBoxes::block * blocks;
  constexpr int place_shift = 120 - fraction_bits - 3;  // 2^3 strips in a block
  return (start << fraction_bits) + static_cast<std::uint64_t>(place >> place_shift);
}

}  // namespace sotto
