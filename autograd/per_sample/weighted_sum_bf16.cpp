#include "autograd/per_sample/weighted_sum_bf16.h"

#include <algorithm>
#include <array>

#include "kernels/backend.h"
#include "kernels/host_device/bf16_split.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::detail {

namespace {

// Bytes of split factors at a time.
constexpr std::int64_t chunk_bytes = std::int64_t{128} << 20;

// The factors, of which the smaller one is scaled. Images are channels-last.
struct Factors {
  explicit Factors(const Form& form) : images(form.as<Patches>()) {
    const auto* const outer = form.as<Outer>();
    const Tensor b = outer ? outer->b : channels_last(images->dy),
                 a = outer ? outer->a : channels_last(images->x);
    flipped = a.numel() < b.numel();
    scaled = flipped ? a : b;
    unscaled = flipped ? b : a;
  }
  // The number of samples that are split at a time.
  std::int64_t step() const {
    const std::int64_t n = scaled.size(0);
    const std::int64_t bytes =
        scaled.numel() * float_bf16x2 * static_cast<std::int64_t>(sizeof(bf16));
    return std::max<std::int64_t>(1, chunk_bytes * n / (bytes + 1));
  }
  // y = the sum of products + beta y; `piece` is of the scaled factor.
  void multiply(const Tensor& piece, const Tensor& other, double beta, const Tensor& y) const {
    const Tensor &b = flipped ? other : piece, &a = flipped ? piece : other;
    Backend& device = backend(y.device());
    if (images) {
      const Tensor weight = reshape(y, images->weight_shape());
      device.conv_weight(b.view(), a.view(), images->window, beta, weight.view());
    } else {
      // b may have further columns (padded_outer.h).
      const std::int64_t columns = a.size(2), rows = columns == 0 ? 0 : y.numel() / columns;
      const Tensor product = reshape(y, {rows, columns});
      device.gemm(flat(b).slice(1, 0, rows).transpose(0, 1).view(), flat(a).view(), beta,
                  product.view());
    }
  }

  const Patches* images;  // nullptr for an outer form
  bool flipped = false;
  Tensor scaled, unscaled;
};

// Tensors whose sum is x with each sample multiplied by its weight, in the order of x's axes.
std::array<Tensor, float_bf16x2> pieces_of(const Tensor& x, const Tensor& weights) {
  const bool images = x.rank() == 5;
  const Tensor in_order = images ? x.permute({0, 2, 3, 4, 1}) : x;
  const std::int64_t n = x.size(0), each = n == 0 ? 0 : x.numel() / n;
  const Tensor both = Tensor::empty({float_bf16x2, n, each}, Dtype::bf16, x.device());
  backend(x.device())
      .scale_to_bf16x2(reshape(in_order, {n, each}).view(), weights.view(), both.view());
  std::array<Tensor, float_bf16x2> pieces;
  for (int p = 0; p < float_bf16x2; ++p) {
    const Tensor piece = reshape(both.select(0, p), in_order.shape());
    pieces[static_cast<std::size_t>(p)] = images ? piece.permute({0, 4, 1, 2, 3}) : piece;
  }
  return pieces;
}

}  // namespace

bool is_split_into_bf16(const Form& form) {
  const bool product = form.as<Outer>() || form.as<Patches>();
  return product && form.factor_type() == Dtype::bf16 && form.device() != cpu;
}

Tensor lifted(const Tensor& weights) { return scale(to_dtype(weights, Dtype::f64), bf16_lift); }

void lifted_sums_bf16(const Form& form, const Tensor& weights, std::span<const std::int64_t> ends,
                      const Tensor& y) {
  const Factors factors(form);
  const std::int64_t step = factors.step(), n = form.samples();
  std::int64_t block = 0, start = 0;  // of the block that sample `at` is in
  for (std::int64_t at = 0; at < n;) {
    // Whole blocks, or a part of one that is too large.
    std::int64_t end = std::min(n, at + step);
    const auto whole = std::ranges::upper_bound(ends, end);
    if (whole != ends.begin() && whole[-1] > at) end = whole[-1];
    const auto pieces = pieces_of(factors.scaled.slice(0, at, end), weights.slice(0, at, end));
    for (std::int64_t from = at; from < end;) {
      const std::int64_t block_end = ends[static_cast<std::size_t>(block)],
                         to = std::min(end, block_end);
      const Tensor other = factors.unscaled.slice(0, from, to);
      for (const Tensor& piece : pieces) {
        const bool first = from == start && &piece == &pieces[0];
        factors.multiply(piece.slice(0, from - at, to - at), other, first ? 0 : 1,
                         y.select(0, block));
      }
      if (to == block_end) {
        ++block;
        start = to;
      }
      from = to;
    }
    at = end;
  }
}

Tensor weighted_sum_bf16(const Form& form, const Shape& shape, const Tensor& weights) {
  const std::int64_t n = form.samples();
  if (n == 0) return zeros(shape, form.dtype(), form.device());
  const Tensor y = Tensor::empty({1, shape.numel()}, form.dtype(), form.device());
  lifted_sums_bf16(form, lifted(weights), {&n, 1}, y);
  axpby(0, y, 1 / bf16_lift, y);
  return reshape(y, shape);
}

}  // namespace sotto::detail
