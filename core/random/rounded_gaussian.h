// Gaussian noise on the integers, for mechanisms that release integers. Device code can include
// this header.
#pragma once

#include <span>

#include "core/random/exact_normal.h"
#include "core/random/secret_random.h"

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
  void fill(SecretRandom& random, std::span<std::int64_t> out) const {
    fill(random.reserve(blocks_for(out.size())), out);
  }
  // The same from the first blocks_for(out.size()) blocks of a stretch: draw i begins with word i,
  // and each group of `group_values` draws shares one stretch for the words that they need more of.
  void fill(const ChaChaStream& stream, std::span<std::int64_t> out) const;

  static constexpr std::size_t words_in_block = chacha_block_bytes / sizeof(std::uint64_t);
  // 8 KiB of words, so that a thread works in its first-level cache.
  static constexpr std::size_t group_values = 1024;
  static constexpr std::uint64_t group_blocks = group_values / words_in_block;
  static constexpr std::uint64_t blocks_for(std::size_t draws) {
    return (draws + words_in_block - 1) / words_in_block;
  }
  // Where the undecided draws of the group that begins at the stretch take more words, in the order
  // of the draws.
  HD static ChaChaStream more_words(const ChaChaStream& group) {
    // A domain of the group's own: the number of its first block, with this bit.
    constexpr std::uint64_t domain = std::uint64_t{1} << 63;
    return {group.key, domain | group.block, 0};
  }

  // The draw that begins with `word`, if certain(word).
  HD std::int64_t decided(std::uint64_t word) const {
    return rounded(boxes_.magnitude(word), ExactNormalSampler::negative(word));
  }
  HD bool certain(std::uint64_t word) const { return boxes_.certain(word); }
  // The draw that begins with `word`, certain or not, and takes more words, more(), as it needs
  // them.
  template <class Words>
  HD std::int64_t draw(std::uint64_t word, Words&& more) const {
    return rounded(boxes_.decide(word, more), ExactNormalSampler::negative(word));
  }
  // A strip is 2^strip_exponent() integers wide.
  int strip_exponent() const { return ExactNormalSampler::fraction_bits - shift_; }
  const ExactNormalSampler& boxes() const { return boxes_; }

 private:
  HD std::int64_t rounded(std::uint64_t magnitude, bool negative) const {
    const std::uint64_t half = std::uint64_t{1} << (shift_ - 1);
    const auto n = static_cast<std::int64_t>((magnitude + half) >> shift_);
    return negative ? -n : n;
  }
  void draw_group(const ChaChaStream& stream, std::span<std::int64_t> out) const;

  int shift_;  // from a magnitude's last bit to the integers
  ExactNormalSampler boxes_;
};

}  // namespace sotto
