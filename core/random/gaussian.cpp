#include "core/random/gaussian.h"

#include <algorithm>
#include <array>
#include <bit>

#include "core/random/box_muller.h"
#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"

namespace sotto {

namespace {

// A group is 64 blocks, which give 256 pairs of words; it fits in a thread's first-level cache.
constexpr std::size_t pairs = 256;
constexpr std::size_t group_values = 2 * pairs;
constexpr std::uint64_t group_blocks = group_values * 8 / chacha_block_bytes;
// The domain of the keystream for exponent bits beyond the first 22.
constexpr std::uint64_t refill_domain = 1;

// The number of leading zeros of a pair whose first 22 exponent bits are zero, from up to 512
// further bits of its own block. Counting stops there, which happens with probability 2^-534.
double refilled_zeros(const ChaChaStream& stream, std::uint64_t pair) {
  const ChaChaStream refill{stream.key, refill_domain, stream.block * (pairs / group_blocks)};
  int zeros = box_muller::exponent_bits;
  for (const std::uint32_t word : chacha20_block(refill, pair).word) {
    zeros += std::countl_zero(word);
    if (word != 0) break;
  }
  return zeros;
}

// Writes one group: pair i takes its radius from word i and its angle from word 256 + i, and gives
// the values at these two indices.
void draw_group(const ChaChaStream& stream, std::uint64_t group, double* out) {
  std::array<std::uint64_t, group_values> words;
  std::array<double, pairs> zeros;
  ChaChaStream here = stream;
  here.block += group * group_blocks;
  chacha20_keystream(here, words.data(), sizeof words);
  std::uint64_t min = 1;
  for (std::size_t i = 0; i < pairs; ++i) {
    const std::uint64_t choice = box_muller::exponent_choice(words[i], words[pairs + i]);
    zeros[i] = leading_zeros(choice);
    min = std::min(min, choice);
  }
  for (std::size_t i = 0; min == 0 && i < pairs; ++i) {
    if (box_muller::exponent_choice(words[i], words[pairs + i]) == 0) {
      zeros[i] = refilled_zeros(here, i);
    }
  }
  for (std::size_t i = 0; i < pairs; ++i) {
    const NormalPair z = normal_pair(words[i], words[pairs + i], zeros[i]);
    out[i] = z.cosine;
    out[pairs + i] = z.sine;
  }
}

}  // namespace

void fill_gaussian(SecretRandom& random, std::span<double> out) {
  constexpr std::int64_t grain = 32;  // 16384 values, about 0.2 ms
  const std::size_t groups = (out.size() + group_values - 1) / group_values;
  const ChaChaStream stream = random.reserve(groups * group_blocks);
  const auto draw = [&](std::int64_t begin, std::int64_t end) {
    for (auto g = static_cast<std::size_t>(begin); g < static_cast<std::size_t>(end); ++g) {
      double* const to = out.data() + g * group_values;
      if ((g + 1) * group_values <= out.size()) {
        draw_group(stream, g, to);
      } else {
        std::array<double, group_values> last;
        draw_group(stream, g, last.data());
        std::copy_n(last.data(), out.size() - g * group_values, to);
      }
    }
  };
  parallel_for(static_cast<std::int64_t>(groups), grain, [&](std::int64_t begin, std::int64_t end) {
    simd_dispatch([&] { draw(begin, end); });
  });
}

}  // namespace sotto
