#include "autograd/per_sample/weighted_sum_bf16.h"

#include <algorithm>

#include "kernels/backend.h"
#include "kernels/host_device/bf16_split.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::detail {

namespace {

// The factor is scaled up by this before it is split: bf16 holds no digits below 2^-133, and after
// scaling these correspond to digits of the factor that f32 could not hold either.
constexpr double lift = 0x1p60;
// Bytes of split factors at a time.
constexpr std::int64_t chunk_bytes = std::int64_t{128} << 20;

// Calls f(piece) for bf16 tensors whose sum is x with each sample multiplied by its weight. x is
// row-major or channels-last, and so is each piece.
template <class F>
void for_each_piece(const Tensor& x, const Tensor& weights, F&& f) {
  const bool images = x.rank() == 5;
  const Tensor in_order = images ? x.permute({0, 2, 3, 4, 1}) : x;
  const std::int64_t n = x.size(0), each = n == 0 ? 0 : x.numel() / n;
  const Tensor pieces = Tensor::empty({float_bf16x2, n, each}, Dtype::bf16, x.device());
  backend(x.device())
      .scale_to_bf16x2(reshape(in_order, {n, each}).view(), weights.view(), pieces.view());
  for (int p = 0; p < float_bf16x2; ++p) {
    const Tensor piece = reshape(pieces.select(0, p), in_order.shape());
    f(images ? piece.permute({0, 4, 1, 2, 3}) : piece);
  }
}

}  // namespace

bool is_split_into_bf16(const Form& form) {
  const bool product = form.as<Outer>() || form.as<Patches>();
  return product && form.factor_type() == Dtype::bf16 && form.device() != cpu;
}

// Scales the smaller factor, a few samples at a time.
Tensor weighted_sum_bf16(const Form& form, const Shape& shape, const Tensor& weights) {
  const auto* const outer = form.as<Outer>();
  const auto* const images = form.as<Patches>();
  const Tensor b = outer ? outer->b : channels_last(images->dy),
               a = outer ? outer->a : channels_last(images->x);
  const bool flipped = a.numel() < b.numel();
  const Tensor &scaled = flipped ? a : b, &unscaled = flipped ? b : a;
  const Tensor w = scale(to_dtype(weights, Dtype::f64), lift);
  const Tensor y = zeros(shape, form.dtype(), b.device());
  const auto add_product = [&](const Tensor& left, const Tensor& right) {
    if (outer) {
      Outer{left, right}.add_sum(y);
    } else {
      conv_weight_add(left, right, images->window, reshape(y, images->weight_shape()));
    }
  };
  const std::int64_t n = form.samples();
  const std::int64_t bytes =
      scaled.numel() * float_bf16x2 * static_cast<std::int64_t>(sizeof(bf16));
  const std::int64_t step = std::max<std::int64_t>(1, chunk_bytes * n / (bytes + 1));
  for (std::int64_t at = 0; at < n; at += step) {
    const std::int64_t end = std::min(n, at + step);
    const Tensor other = unscaled.slice(0, at, end);
    for_each_piece(scaled.slice(0, at, end), w.slice(0, at, end), [&](const Tensor& piece) {
      add_product(flipped ? other : piece, flipped ? piece : other);
    });
  }
  axpby(0, y, 1 / lift, y);
  return y;
}

}  // namespace sotto::detail
