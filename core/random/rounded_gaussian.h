// Gaussian noise on the integers, for mechanisms that release integers. Device code can include
// this header.
#pragma once

#include <span>

#include "core/random/exact_normal.h"
#include "core/random/secret_random.h"

namespace sotto {

// Samples a normal of a given standard deviation, rounded to the nearest integer: P(n) is the
// integral of the density from n - 1/2 to n + 1/2. Sampling uses integer arithmetic only, and every
// probability is within a factor of 1 +- 2^-80 (docs/appendix/proofs-noise.md, "The noise").
class RoundedGaussian {
 public:
  static constexpr double min_stddev = 0x1p-8, stddev_limit = 0x1p55;

  // The exact standard deviation is between `stddev` and (1 + 2^-48) `stddev`, never less.
  // Throws std::invalid_argument unless min_stddev <= stddev < stddev_limit.
  explicit RoundedGaussian(double stddev);

  // Fills `out` with independent samples, |n| < 2^63. Element i does not depend on the number of
  // threads.
  void fill(SecretRandom& random, std::span<std::int64_t> out) const {
    fill(random.reserve(blocks_for(out.size())), out);
  }
  // As above, from the first blocks_for(out.size()) blocks of a stream: sample i begins with word
  // i; further words come from one stream per group of `group_values` samples (more_words()).
  void fill(const ChaChaStream& stream, std::span<std::int64_t> out) const;

  static constexpr std::size_t words_in_block = chacha_block_bytes / sizeof(std::uint64_t);
  // 8 KiB of words, which fit in a thread's first-level cache.
  static constexpr std::size_t group_values = 1024;
  static constexpr std::uint64_t group_blocks = group_values / words_in_block;
  static constexpr std::uint64_t blocks_for(std::size_t draws) {
    return (draws + words_in_block - 1) / words_in_block;
  }
  // The stream of further words for the undecided samples of a group, consumed in the order of the
  // samples. `group` is the stream from the group's first block.
  HD static ChaChaStream more_words(const ChaChaStream& group) {
    // A domain of the group's own: this bit, plus the number of its first block.
    constexpr std::uint64_t domain = std::uint64_t{1} << 63;
    return {group.key, domain | group.block, 0};
  }

  // The sample that begins with `word`; requires certain(word).
  HD std::int64_t decided(std::uint64_t word) const {
    return rounded(boxes_.magnitude(word), ExactNormalSampler::negative(word));
  }
  HD bool certain(std::uint64_t word) const { return boxes_.certain(word); }
  // The sample that begins with `word` and calls more() for further words as needed.
  template <class Words>
  HD std::int64_t draw(std::uint64_t word, Words&& more) const {
    return rounded(boxes_.decide(word, more), ExactNormalSampler::negative(word));
  }
  // A strip of boxes() is 2^strip_exponent() integers wide.
  int strip_exponent() const { return ExactNormalSampler::fraction_bits - shift_; }
  const ExactNormalSampler& boxes() const { return boxes_; }

 private:
  HD std::int64_t rounded(std::uint64_t magnitude, bool negative) const {
    const std::uint64_t half = std::uint64_t{1} << (shift_ - 1);
    const auto n = static_cast<std::int64_t>((magnitude + half) >> shift_);
    return negative ? -n : n;
  }
  void draw_group(const ChaChaStream& stream, std::span<std::int64_t> out) const;

  int shift_;  // shift from the last bit of a magnitude to integers
  ExactNormalSampler boxes_;
};

}  // namespace sotto
