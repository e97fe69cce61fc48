// Weighted sums of per-sample gradients whose factors are bf16, where products of such are much
// faster than those of f32: the factor that is scaled becomes the sum of two in bf16. What that
// lacks (bf16_split.h) counts as rounding where norms are taken; from 2^68 on the sum is not
// finite.
#include <algorithm>

#include "autograd/per_sample/per_sample.h"
#include "kernels/host_device/bf16_split.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// What the scaled factor is multiplied by, so that its last digits, which bf16 cannot hold below
// 2^-133, are further down than f32 alone would have them.
constexpr double lift = 0x1p60;
// Of pieces at a time.
constexpr std::int64_t part_bytes = std::int64_t{128} << 20;

// Calls f(piece) for tensors in bf16 that add up to x's samples, which are row-major or
// channels-last, times a weight each, and lie in memory as x does.
template <class F>
void for_each_piece(const Tensor& x, const Tensor& weights, F&& f) {
  const bool images = x.rank() == 5;
  const Tensor lying = images ? x.permute({0, 2, 3, 4, 1}) : x;
  const std::int64_t n = x.size(0), each = n == 0 ? 0 : x.numel() / n;
  const Tensor pieces = Tensor::empty({float_bf16x2, n, each}, Dtype::bf16, x.device());
  backend(x.device())
      .scale_to_bf16x2(reshape(lying, {n, each}).view(), weights.view(), pieces.view());
  for (int p = 0; p < float_bf16x2; ++p) {
    const Tensor piece = reshape(pieces.select(0, p), lying.shape());
    f(images ? piece.permute({0, 4, 1, 2, 3}) : piece);
  }
}

}  // namespace

// Whether weights on the device that the factors are on are given to one of them in pieces.
bool PerSampleGrad::scaled_in_pieces() const {
  const bool product =
      std::holds_alternative<Outer>(form_) || std::holds_alternative<Patches>(form_);
  return product && factor_type() == Dtype::bf16 && leading().device() != cpu;
}

// The smaller factor is scaled, a few samples' at a time.
Tensor PerSampleGrad::sum_in_pieces(const Tensor& weights) const {
  const auto* const outer = std::get_if<Outer>(&form_);
  const auto* const images = std::get_if<Patches>(&form_);
  const Tensor b = outer ? outer->b : channels_last(images->dy),
               a = outer ? outer->a : channels_last(images->x);
  const bool flipped = a.numel() < b.numel();
  const Tensor &moved = flipped ? a : b, &keep = flipped ? b : a;
  const Tensor w = scale(to_dtype(weights, Dtype::f64), lift);
  const Tensor y = zeros(shape_, dtype(), b.device());
  const auto add_product = [&](const Tensor& left, const Tensor& right) {
    if (outer) {
      outer_sum_add(flat(left), flat(right), reshape(y, {b.size(2), a.size(2)}));
    } else {
      conv_weight_add(left, right, images->window, reshape(y, weight_shape(b, a, images->window)));
    }
  };
  const std::int64_t n = samples();
  const std::int64_t bytes = moved.numel() * float_bf16x2 * static_cast<std::int64_t>(sizeof(bf16));
  const std::int64_t step = std::max<std::int64_t>(1, part_bytes * n / (bytes + 1));
  for (std::int64_t at = 0; at < n; at += step) {
    const std::int64_t end = std::min(n, at + step);
    const Tensor kept = keep.slice(0, at, end);
    for_each_piece(moved.slice(0, at, end), w.slice(0, at, end), [&](const Tensor& piece) {
      add_product(flipped ? kept : piece, flipped ? piece : kept);
    });
  }
  axpby(0, y, 1 / lift, y);
  return y;
}

}  // namespace sotto
