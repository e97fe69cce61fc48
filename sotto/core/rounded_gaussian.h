// Gaussian noise on the integers, for mechanisms that release integers.
#pragma once

#include <span>

#include "sotto/core/normal_boxes.h"
#include "sotto/core/secret_random.h"

namespace sotto {

// Normals of a given standard deviation, rounded to the nearest integer: P(n) is the integral of
// the density from n - 1/2 to n + 1/2. No floating-point number is involved in a draw, and every
// probability is within a factor of 1 +- 2^-80 (docs/privacy.md, "The noise").
class RoundedGaussian {
 public:
  static constexpr double least_deviation = 0x1p-8, deviation_limit = 0x1p55;

  // The true deviation is `deviation` or up to 2^-48 of it more, never less. Throws
  // std::invalid_argument unless least_deviation <= deviation < deviation_limit.
  explicit RoundedGaussian(double deviation);

  // Independent draws, |n| < 2^63. Element i does not depend on the number of threads.
  void fill(SecretRandom& random, std::span<std::int64_t> out) const;

  // The draw that begins with `word` and takes more words as it needs them: what fill() does with
  // words of its own.
  std::int64_t draw(std::uint64_t word, const NormalBoxes::Words& more) const;
  // A strip is 2^strip_exponent() integers wide.
  int strip_exponent() const { return NormalBoxes::fraction_bits - shift_; }
  const NormalBoxes& boxes() const { return boxes_; }

 private:
  std::int64_t rounded(std::uint64_t magnitude, bool negative) const;
  void draw_group(const ChaChaStream& stream, std::span<std::int64_t> out) const;

  int shift_;  // from a magnitude's last bit to the integers
  NormalBoxes boxes_;
};

}  // namespace sotto
