#include <algorithm>

#include "autograd/per_sample/forms.h"
#include "autograd/per_sample/norms.h"
#include "autograd/per_sample/padded_outer.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "kernels/backend.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

using namespace detail;

// Bytes of copies of the direction that stand beside as many materialized gradients.
constexpr std::size_t copied_bytes = std::size_t{16} << 20;

// y[n] = sum_k a[n,k] b[n,k] over all axes but the first, in row-major order.
void rows_dot(const Tensor& a, const Tensor& b, const Tensor& y) {
  const std::int64_t n = a.size(0), width = n == 0 ? 0 : a.numel() / n;
  const Tensor left = reshape(contiguous(a), {n, width}),
               right = reshape(contiguous(b), {n, width});
  backend(y.device()).row_dot(left.view(), right.view(), y.view());
}

// <sum_t b[t] (x) a[t], V> = sum_t <b[t], V a[t]>
void dot_into(const Outer& f, const Tensor& v, const Tensor& y) {
  const Tensor b = own_columns(f, v.shape());
  const Tensor matrix = reshape(v, {b.size(2), f.a.size(2)});
  const Tensor va = gemm(flat(f.a), matrix.transpose(0, 1));
  rows_dot(b, reshape(va, b.shape()), y);
}

// <dW, V> = <dy, conv(x, V)>
void dot_into(const Patches& f, const Tensor& v, const Tensor& y) {
  const Tensor vx = conv(f.x, reshape(v, f.weight_shape()), {}, f.window);
  rows_dot(f.dy.permute({0, 2, 3, 4, 1}), vx.permute({0, 2, 3, 4, 1}), y);
}

// <sum_t e(ids[t]) (x) b[t], V> = sum_t <b[t], V[ids[t]]>
void dot_into(const OneHot& f, const Tensor& v, const Tensor& y) {
  const Shape each{f.ids.size(0), f.ids.size(1), f.b.size(2)};
  const Tensor rows = gather(reshape(v, {-1, f.b.size(2)}), reshape(f.ids, {f.ids.numel()}), 0);
  rows_dot(f.b.expand(each), reshape(rows, each), y);
}

void dot_into(const Dense& f, const Tensor& v, const Tensor& y) {
  const std::int64_t n = f.gradients.size(0);
  const std::int64_t step = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(copied_bytes / std::max<std::size_t>(1, v.bytes())));
  for (std::int64_t at = 0; at < n; at += step) {
    const Tensor part = f.gradients.slice(0, at, std::min(n, at + step));
    rows_dot(part, v.expand(part.shape()), y.slice(0, at, std::min(n, at + step)));
  }
}

void dot_into(const Derived& f, const Tensor& v, const Tensor& y) {
  f.for_each_chunk([&](const Tensor& rows, std::int64_t begin, std::int64_t end) {
    dot_into(Dense{rows}, v, y.slice(0, begin, end));
  });
}

}  // namespace

Tensor dot(const PerSampleGrad& f, const Tensor& v) {
  check(v.defined() && v.shape() == f.shape() && v.dtype() == f.dtype(),
        "dot: gradients {} {} and a direction {} {}", name(f.dtype()), f.shape(),
        v.defined() ? name(v.dtype()) : "undefined", v.shape());
  const Tensor y = Tensor::empty({f.samples()}, Dtype::f64, f.device());
  f.form_data().for_each_converted([&](const Form& part, std::int64_t begin, std::int64_t end) {
    part.visit([&](const auto& form) { dot_into(form, v, y.slice(0, begin, end)); });
  });
  return y;
}

}  // namespace sotto
