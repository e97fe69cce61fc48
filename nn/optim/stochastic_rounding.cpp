#include "nn/optim/stochastic_rounding.h"

#include <bit>

#include "core/threads/parallel.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::nn {

namespace {

constexpr std::int64_t grain = 1 << 13;  // elements that make another thread worthwhile

// Adding a uniform number from 0 .. 2^16 - 1 to the bits of a float carries into the upper half
// with probability (lower half) / 2^16, which is the distance to the neighbour above; magnitudes
// are ordered like their bits.
bf16 rounded(float x, std::uint32_t draw) {
  constexpr std::uint32_t magnitude = 0x7fffffffu, infinity = 0x7f800000u, lower = 0xffffu;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & magnitude) >= infinity) return bf16(x);
  const std::uint32_t up = bits + (draw & lower);
  const std::uint32_t kept = (up & magnitude) >= infinity ? bits : up;
  bf16 y;
  y.bits = static_cast<std::uint16_t>(kept >> 16);
  return y;
}

}  // namespace

void round_at_random(PhiloxKey key, std::uint64_t first, const Tensor& x, const Tensor& y) {
  check(x.shape() == y.shape() && is_float(x.dtype()) && y.dtype() == Dtype::bf16 &&
            y.contiguous() && x.device() == cpu && y.device() == cpu,
        "round_at_random: {} {} to {} {}", name(x.dtype()), x.shape(), name(y.dtype()), y.shape());
  const Tensor from = contiguous(to_dtype(x, Dtype::f32));
  const float* in = from.data<float>();
  bf16* out = y.data<bf16>();
  parallel_for(x.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      // Each Philox block supplies eight draws of 16 bits.
      const std::uint64_t at = first + static_cast<std::uint64_t>(i);
      const std::uint32_t word = philox(key, at / 8).word[at % 8 / 2];
      out[i] = rounded(in[i], word >> (at % 2 * 16));
    }
  });
}

}  // namespace sotto::nn
