#include "tests/support/emulated_pairs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/host_device/gemm_blocking.h"

namespace sotto {
namespace {

constexpr std::int64_t pair_bytes = 4, tile_pairs = 16;

// Subnormal results are zeros of their sign.
float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x; }

struct Pair {
  float first, second;
};

Pair pair_at(const char* data) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, data, sizeof(bits));
  return {flushed(std::bit_cast<float>(bits << 16)),
          flushed(std::bit_cast<float>(bits & 0xffff0000U))};
}

float multiply_add(float x, float y, float sum) { return flushed(std::fmaf(x, y, sum)); }

// The sum of one element over `pairs` pairs, x and `pitch` bytes apart y.
using Element = float (*)(float before, std::int64_t pairs, const char* x, const char* y,
                          std::int64_t pitch);

// The even and the odd terms of 16 pairs have sums of their own.
float by_tiles(float before, std::int64_t pairs, const char* x, const char* y, std::int64_t pitch) {
  float sum = flushed(before);
  for (std::int64_t at = 0; at < pairs; at += tile_pairs) {
    float first = 0, second = 0;
    for (std::int64_t p = at; p < at + tile_pairs; ++p) {
      const Pair a = pair_at(x + p * pair_bytes), b = pair_at(y + p * pitch);
      first = multiply_add(a.first, b.first, first);
      second = multiply_add(a.second, b.second, second);
    }
    sum = flushed(sum + flushed(first + second));
  }
  return sum;
}

float by_dots(float before, std::int64_t pairs, const char* x, const char* y, std::int64_t pitch) {
  for (std::int64_t at = 0; at < pairs; at += pair_chain / 2) {
    float sum = 0;
    for (std::int64_t p = at; p < std::min(pairs, at + pair_chain / 2); ++p) {
      const Pair a = pair_at(x + p * pair_bytes), b = pair_at(y + p * pitch);
      sum = multiply_add(a.first, b.first, multiply_add(a.second, b.second, sum));
    }
    before += sum;
  }
  return before;
}

template <Element element>
void multiply(std::int64_t rows, std::int64_t pairs, const TermRows& a, const PairPanel& panel,
              const SumRows& sums, bool add) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < panel.width; ++j) {
      float& sum = sums.data[i * sums.stride + j];
      sum = element(add ? sum : 0, pairs, a.data + i * a.stride, panel.data + j * pair_bytes,
                    panel.width * pair_bytes);
    }
  }
}

constexpr auto nothing = [] {};
constexpr PairKernel tile_kernel{.rows = 2 * tile_pairs,
                                 .columns = 2 * panel_unit,
                                 .unit = tile_pairs,
                                 .pairs = tile_pairs,
                                 .chain = 2 * tile_pairs,
                                 .multiply = multiply<by_tiles>,
                                 .begin = nothing,
                                 .end = nothing};
constexpr PairKernel dot_kernel{.rows = 3 * panel_unit,
                                .columns = 3 * panel_unit,
                                .unit = 1,
                                .pairs = 1,
                                .chain = pair_chain,
                                .multiply = multiply<by_dots>,
                                .begin = nothing,
                                .end = nothing};

}  // namespace

EmulatedPairs::EmulatedPairs(PairInstructions instructions) {
  use_pair_kernel(instructions == PairInstructions::tiles ? &tile_kernel : &dot_kernel);
}

}  // namespace sotto
