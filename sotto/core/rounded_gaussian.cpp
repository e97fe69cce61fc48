#include "sotto/core/rounded_gaussian.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sotto/core/error.h"
#include "sotto/core/parallel.h"

namespace sotto {

namespace {

class MoreWords {
 public:
  explicit MoreWords(const ChaChaStream& group) : stream_(RoundedGaussian::more_words(group)) {}

  std::uint64_t operator()() {
    if (used_ == words_.size()) {
      chacha20_keystream(stream_, words_.data(), sizeof words_);
      stream_.block += words_.size() / RoundedGaussian::words_in_block;
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

void RoundedGaussian::draw_group(const ChaChaStream& stream, std::span<std::int64_t> out) const {
  std::array<std::uint64_t, group_values> words;
  std::array<std::uint16_t, group_values> undecided;
  std::size_t count = 0;
  chacha20_keystream(stream, words.data(), out.size() * sizeof(std::uint64_t));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = decided(words[i]);
    undecided[count] = static_cast<std::uint16_t>(i);
    count += certain(words[i]) ? 0 : 1;
  }
  MoreWords more(stream);
  for (std::size_t k = 0; k < count; ++k) out[undecided[k]] = draw(words[undecided[k]], more);
}

void RoundedGaussian::fill(const ChaChaStream& stream, std::span<std::int64_t> out) const {
  constexpr std::int64_t grain = 8;  // 8192 values, some 50 microseconds
  const std::size_t groups = (out.size() + group_values - 1) / group_values;
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
