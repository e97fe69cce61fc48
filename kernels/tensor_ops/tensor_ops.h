// Arithmetic on tensors without derivatives: checks the arguments, allocates the result and calls
// the device's backend. Results keep the memory order of their (first) operand where they can, so
// that channels-last images stay so.
#pragma once

#include "core/tensor.h"
#include "kernels/backend.h"

namespace sotto {

// Creation.
Tensor full(const Shape& shape, double value, Dtype dtype = Dtype::f32, Device device = cpu);
Tensor zeros(const Shape& shape, Dtype dtype = Dtype::f32, Device device = cpu);
Tensor empty_like(const Tensor& x);  // same shape, dtype, device and memory order
Tensor zeros_like(const Tensor& x);

// Movement.
Tensor contiguous(const Tensor& x);                   // x itself when row-major
Tensor clone(const Tensor& x);                        // same memory order
Tensor to_dtype(const Tensor& x, Dtype dtype);        // x itself when it has that dtype
Dtype arithmetic_type(Dtype dtype);                   // f32 for f16 and bf16, else itself
Tensor reshape(const Tensor& x, const Shape& shape);  // a view where possible; one entry may be -1
void copy_into(const Tensor& x, const Tensor& y);     // broadcasts x to y's shape
Tensor concat(const std::vector<Tensor>& parts, int axis);
// By which dropout draws a slice: its row, and the number of its first element (dropout_counter.h).
struct RowDraws {
  std::uint64_t row, first;
};
// Booleans, true with probability `keep`: public randomness, for each slice along the first axis.
Tensor bernoulli(PhiloxKey key, const std::vector<RowDraws>& rows, double keep, const Shape& shape,
                 Device device);
// y[.., k, ..] = x[.., ids[k], ..]; negative ids give zeros. Throws for ids past the end.
Tensor gather(const Tensor& x, const Tensor& ids, int axis);
// The transpose of gather: an axis of `size`, into which rows with the same id are added.
Tensor scatter_add(const Tensor& x, const Tensor& ids, int axis, std::int64_t size);
// The same onto what y holds.
void scatter_add_into(const Tensor& x, const Tensor& ids, int axis, const Tensor& y);

// Elementwise; `op` is a functor of functors.h by its index (unary_index<Tanh>). Results are new
// tensors, or `into` where that is given: of the result's shape and type, an operand itself for
// instance. What the functor does not read may be any tensor that broadcasts to dy's shape.
Tensor unary(int op, const Tensor& x, Constants constants = {}, const Tensor& into = {});
Tensor unary_grad(int op, const Tensor& x, const Tensor& y, const Tensor& dy, Constants constants,
                  const Tensor& into = {});
Tensor binary(int op, const Tensor& a, const Tensor& b, const Tensor& into = {});
Tensor binary_grad(int op, int which, const Tensor& a, const Tensor& b, const Tensor& dy,
                   const Tensor& into = {});
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor scale(const Tensor& x, double factor);
// y = alpha x + beta y, in place; beta 0 does not read y.
void axpby(double alpha, const Tensor& x, double beta, const Tensor& y);

// Reductions over `axes` (all when empty), which keep size 1 or go.
Tensor reduce(Reduction op, const Tensor& x, const Shape& axes, bool keepdim);
Tensor sum(const Tensor& x, const Shape& axes = {}, bool keepdim = false);
// The sum in f32 of values in f16 or bf16.
Tensor sum_f32(const Tensor& x, const Shape& axes = {}, bool keepdim = false);
// An id for each element along `axis` (Backend::take_along, put_along_add). The second gives an
// array of `shape` that is zero where nothing was put. Both throw for ids outside the axis.
Tensor take_along(const Tensor& x, const Tensor& ids, int axis);
Tensor put_along(const Tensor& x, const Tensor& ids, int axis, const Shape& shape);
// Sums x over what broadcasting added to reach x's shape from `shape`.
Tensor sum_to(const Tensor& x, const Shape& shape);
Tensor sum_to_f32(const Tensor& x, const Shape& shape);
Tensor argmax(const Tensor& x);  // over the last axis, dropped; i64

// a [.., m, k] b [.., k, n]; both of rank 2, or a batch axis in front of either or both.
Tensor gemm(const Tensor& a, const Tensor& b);
// The product in f32 of values in f16 or bf16.
Tensor gemm_f32(const Tensor& a, const Tensor& b);
// y[.., o, i] = sum_t b[.., t, o] a[.., t, i], of rank 2 or 3; in f32 where b and a are f16 or
// bf16.
Tensor outer_sum(const Tensor& b, const Tensor& a);
// y += the same; y may be f32 where b and a are f16 or bf16.
void outer_sum_add(const Tensor& b, const Tensor& a, const Tensor& y);

// a b + bias, of matrices; bias [columns], rounded to the product's type.
Tensor affine(const Tensor& a, const Tensor& b, const Tensor& bias);
// Convolution of [n, c, d, h, w]; the result is channels-last. `bias` may be undefined.
Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window);
Tensor conv_data(const Tensor& dy, const Tensor& w, const Window& window, const Shape& x_shape);
// Gradients of weights are f32 where dy is f16 or bf16.
Tensor conv_weight(const Tensor& dy, const Tensor& x, const Window& window, const Shape& w_shape);
// dw += the same; dw row-major, of w_shape.
void conv_weight_add(const Tensor& dy, const Tensor& x, const Window& window, const Tensor& dw);
// `norms` is given what conv_weight_norms gives.
Tensor conv_weight_rows(const Tensor& dy, const Tensor& x, const Window& window,
                        const Shape& w_shape, Tensor* norms = nullptr);
// [n, 3] f64, as Backend::conv_weight_norms gives them.
Tensor conv_weight_norms(const Tensor& dy, const Tensor& x, const Window& window);
Tensor unfold(const Tensor& x, const Window& window);

// [n, c, d, h, w] with the bytes in the order n d h w c; x itself when it lies so.
Tensor channels_last(const Tensor& x);

}  // namespace sotto
