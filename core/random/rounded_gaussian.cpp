#include "core/random/rounded_gaussian.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/error.h"
#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"

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

// The samples of a group that their first words leave undecided.
struct Undecided {
  std::array<std::uint32_t, RoundedGaussian::group_values + 8> index;
  std::size_t count = 0;
};

#if defined(__x86_64__)

typedef std::uint64_t Eight __attribute__((vector_size(64)));
typedef std::uint32_t EightHalves __attribute__((vector_size(32)));

// Vectorized RoundedGaussian::decided and certain, eight words at a time; the size must be a
// multiple of 8.
[[gnu::target("avx512f,avx512vl")]] void decide_eights(const ExactNormalSampler& boxes, int shift,
                                                       std::span<const std::uint64_t> words,
                                                       std::int64_t* out, Undecided& undecided) {
  constexpr int bits = ExactNormalSampler::fraction_bits;
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  EightHalves index{0, 1, 2, 3, 4, 5, 6, 7};
  for (std::size_t i = 0; i < words.size(); i += 8) {
    Eight word;
    std::memcpy(&word, &words[i], sizeof word);
    const auto box = reinterpret_cast<__m512i>(word >> (64 - ExactNormalSampler::box_bits));
    const __m256i entry =
        _mm512_mask_i64gather_epi32(__m256i{}, 0xff, box, boxes.entries(), sizeof *boxes.entries());
    const Eight strip = __builtin_convertvector(reinterpret_cast<EightHalves>(entry), Eight) &
                        ExactNormalSampler::strip_mask;
    const Eight n = ((strip << bits | (word & ExactNormalSampler::place_mask)) + half) >> shift;
    const Eight sign = word >> bits & 1;
    const Eight drawn = (n ^ -sign) + sign;
    std::memcpy(&out[i], &drawn, sizeof drawn);
    const auto uncertain = reinterpret_cast<__m256i>(EightHalves{} + ExactNormalSampler::uncertain);
    const __mmask8 open = _mm256_test_epi32_mask(entry, uncertain);
    const __m256i opened = _mm256_maskz_compress_epi32(open, reinterpret_cast<__m256i>(index));
    std::memcpy(&undecided.index[undecided.count], &opened, sizeof opened);
    undecided.count += static_cast<std::size_t>(std::popcount(std::uint32_t{open}));
    index += 8;
  }
}

#endif

// The exponent e with deviation = 2^e strips_in_deviation, strips_in_deviation in [16, 32).
int exponent_of_strip(double stddev) {
  check(stddev >= RoundedGaussian::min_stddev && stddev < RoundedGaussian::stddev_limit,
        "rounded Gaussian: the standard deviation is {}", stddev);
  return std::ilogb(stddev) - 4;
}

// 2^72 / (2 strips_in_deviation^2), never above the exact value: the floating-point arithmetic errs
// by less than 2^-51 of it, so it is reduced by 2^-50.
std::uint64_t lambda(double strips_in_deviation) {
  return static_cast<std::uint64_t>(0x1p71 / (strips_in_deviation * strips_in_deviation) *
                                    (1 - 0x1p-50));
}

}  // namespace

RoundedGaussian::RoundedGaussian(double stddev)
    : shift_(ExactNormalSampler::fraction_bits - exponent_of_strip(stddev)),
      boxes_(lambda(std::ldexp(stddev, -strip_exponent()))) {}

void RoundedGaussian::draw_group(const ChaChaStream& stream, std::span<std::int64_t> out) const {
  std::array<std::uint64_t, group_values> words;
  Undecided undecided;
  chacha20_keystream(stream, words.data(), out.size() * sizeof(std::uint64_t));
  std::size_t i = 0;
#if defined(__x86_64__)
  if (has_avx512()) {
    i = out.size() / 8 * 8;
    decide_eights(boxes_, shift_, std::span(words).first(i), out.data(), undecided);
  }
#endif
  for (; i < out.size(); ++i) {
    out[i] = decided(words[i]);
    undecided.index[undecided.count] = static_cast<std::uint32_t>(i);
    undecided.count += certain(words[i]) ? 0 : 1;
  }
  MoreWords more(stream);
  for (std::size_t k = 0; k < undecided.count; ++k) {
    const std::uint32_t at = undecided.index[k];
    out[at] = draw(words[at], more);
  }
}

void RoundedGaussian::fill(const ChaChaStream& stream, std::span<std::int64_t> out) const {
  constexpr std::int64_t grain = 2;  // 2048 values, about 10 microseconds
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
