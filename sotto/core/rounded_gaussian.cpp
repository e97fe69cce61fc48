#include "sotto/core/rounded_gaussian.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "sotto/core/error.h"
#include "sotto/core/parallel.h"

namespace sotto {

namespace {

// 8 KiB of words, so that a thread works in its first-level cache.
constexpr std::size_t group_values = 1024;
constexpr std::size_t words_in_block = chacha_block_bytes / sizeof(std::uint64_t);
constexpr std::size_t group_blocks = group_values / words_in_block;
// Draws that need more words take them from a keystream of their group's own: its domain is the
// number of the group's first block, with this bit.
constexpr std::uint64_t more_words_domain = std::uint64_t{1} << 63;

class MoreWords {
 public:
  explicit MoreWords(const ChaChaStream& group)
      : stream_{group.key, more_words_domain | group.block, 0} {}

  std::uint64_t operator()() {
    if (used_ == words_.size()) {
      chacha20_keystream(stream_, words_.data(), sizeof words_);
      stream_.block += words_.size() / words_in_block;
      used_ = 0;
    }
    return words_[used_++];
  }

 private:
  ChaChaStream stream_;
  std::array<std::uint64_t, 128> words_;
  std::size_t used_ = words_.size();
};

// deviation = 2^exponent strips_in_deviation, the latter in [16, 32).
int exponent_of_strip(double deviation) {
  check(
      deviation >= RoundedGaussian::least_deviation && deviation < RoundedGaussian::deviation_limit,
      "rounded Gaussian: a standard deviation of {}", deviation);
  return std::ilogb(deviation) - 4;
}

// 2^72 / (2 strips_in_deviation^2), rounded down so far that it is not above the true value: the
// arithmetic is wrong by less than 2^-51 of it.
std::uint64_t lambda(double strips_in_deviation) {
  return static_cast<std::uint64_t>(0x1p71 / (strips_in_deviation * strips_in_deviation) *
                                    (1 - 0x1p-50));
}

}  // namespace

RoundedGaussian::RoundedGaussian(double deviation)
    : shift_(NormalBoxes::fraction_bits - exponent_of_strip(deviation)),
      boxes_(lambda(std::ldexp(deviation, -strip_exponent()))) {}

inline std::int64_t RoundedGaussian::rounded(std::uint64_t magnitude, bool negative) const {
  const std::uint64_t half = std::uint64_t{1} << (shift_ - 1);
  const auto n = static_cast<std::int64_t>((magnitude + half) >> shift_);
  return negative ? -n : n;
}

std::int64_t RoundedGaussian::draw(std::uint64_t word, const NormalBoxes::Words& more) const {
  return rounded(boxes_.decide(word, more), NormalBoxes::negative(word));
}

void RoundedGaussian::draw_group(const ChaChaStream& stream, std::span<std::int64_t> out) const {
  std::array<std::uint64_t, group_values> words;
  std::array<std::uint16_t, group_values> undecided;
  std::size_t count = 0;
  chacha20_keystream(stream, words.data(), out.size() * sizeof(std::uint64_t));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = rounded(boxes_.magnitude(words[i]), NormalBoxes::negative(words[i]));
    undecided[count] = static_cast<std::uint16_t>(i);
    count += boxes_.certain(words[i]) ? 0 : 1;
  }
  MoreWords words_of_group(stream);
  const NormalBoxes::Words more = std::ref(words_of_group);
  for (std::size_t k = 0; k < count; ++k) out[undecided[k]] = draw(words[undecided[k]], more);
}

void RoundedGaussian::fill(SecretRandom& random, std::span<std::int64_t> out) const {
  constexpr std::int64_t grain = 8;  // 8192 values, some 50 microseconds
  const std::size_t groups = (out.size() + group_values - 1) / group_values;
  const ChaChaStream stream = random.reserve((out.size() + words_in_block - 1) / words_in_block);
  parallel_for(static_cast<std::int64_t>(groups), grain, [&](std::int64_t begin, std::int64_t end) {
    for (auto g = static_cast<std::size_t>(begin); g < static_cast<std::size_t>(end); ++g) {
      const std::size_t first = g * group_values;
      ChaChaStream here = stream;
      here.block += g * group_blocks;
      draw_group(here, out.subspan(first, std::min(group_values, out.size() - first)));
    }
  });
}

}  // namespace sotto
