// Weighted sums of per-sample gradients whose factors are bf16, where products of such are much
// faster than those of f32: the factor that is scaled is the sum of three in bf16, exactly, unless
// it is below 2^-170 or passes 2^68, where the sum is not finite.
#include <algorithm>

#include "sotto/autograd/per_sample.h"
#include "sotto/kernels/compute.h"

namespace sotto {

namespace {

// What the scaled factor is multiplied by, so that its last digits, which bf16 cannot hold below
// 2^-133, are further down than f32 alone would have them.
constexpr double lift = 0x1p60;
// Of the factor that is scaled, in f32, at a time.
constexpr std::int64_t part_bytes = std::int64_t{64} << 20;

// Calls f(piece) for three tensors in bf16 that add up to x, which is in f32 and is used up.
template <class F>
void for_each_piece(const Tensor& x, F&& f) {
  constexpr int pieces = 3;  // 8 of 24 bits each: what is left is exact
  for (int piece = 0; piece < pieces; ++piece) {
    const Tensor high = to_dtype(x, Dtype::bf16);
    f(high);
    if (piece + 1 < pieces) axpby(-1, high, 1, x);
  }
}

}  // namespace

// The smaller factor is scaled, a few samples' at a time.
Tensor PerSample::sum_in_pieces(const Tensor& weights) const {
  const auto& [b, a] = std::get<Outer>(form_);
  const bool flipped = a.size(2) < b.size(2);
  const Tensor &moved = flipped ? a : b, &keep = flipped ? b : a;
  const Tensor w = scale(to_dtype(weights, Dtype::f64), lift);
  Tensor y = zeros(shape_, dtype(), b.device());
  const Tensor matrix = reshape(y, {b.size(2), a.size(2)});
  const std::int64_t n = samples();
  const std::int64_t bytes = moved.numel() * static_cast<std::int64_t>(size_of(dtype()));
  const std::int64_t step = std::max<std::int64_t>(1, part_bytes * n / (bytes + 1));
  for (std::int64_t at = 0; at < n; at += step) {
    const std::int64_t end = std::min(n, at + step);
    const Tensor part_w = w.slice(0, at, end), kept = flat(keep.slice(0, at, end));
    const PerSample part(Dense{to_dtype(moved.slice(0, at, end), dtype())}, shape_);
    const PerSample scaled = part.masked(part_w).scaled(part_w);
    for_each_piece(flat(scaled.leading()), [&](const Tensor& piece) {
      const Tensor &left = flipped ? kept : piece, &right = flipped ? piece : kept;
      gemm_add(left.transpose(0, 1), right, matrix);
    });
  }
  axpby(0, y, 1 / lift, y);
  return y;
}

}  // namespace sotto
