// Arithmetic on tensors without derivatives: each function checks its arguments, allocates the
// result and calls the device's backend. Results keep the memory order of their first operand of
// their shape, with gaps or not, so that channels-last images stay channels-last.
#pragma once

#include <utility>
#include <vector>

#include "core/tensor.h"
#include "kernels/primitive_arguments.h"

namespace sotto {

struct PhiloxKey;
struct Window;

// Creation.
Tensor full(const Shape& shape, double value, Dtype dtype = Dtype::f32, Device device = cpu);
Tensor zeros(const Shape& shape, Dtype dtype = Dtype::f32, Device device = cpu);  // all 0
// An uninitialised tensor of equal shape, dtype, device and memory order, without gaps; row-major
// if x was expanded.
Tensor empty_like(const Tensor& x);
Tensor empty_like(const Tensor& x, Dtype dtype, Device device);
Tensor zeros_like(const Tensor& x);  // as empty_like, of zeros

// Movement.
Tensor contiguous(const Tensor& x);                   // x itself if it is row-major
Tensor clone(const Tensor& x);                        // keeps the memory order
Tensor to_dtype(const Tensor& x, Dtype dtype);        // x itself if it has that dtype
Dtype arithmetic_type(Dtype dtype);                   // f32 for f16 and bf16, else itself
Tensor reshape(const Tensor& x, const Shape& shape);  // a view where possible; one entry may be -1
void copy_into(const Tensor& x, const Tensor& y);     // broadcasts x to y's shape
// y = x, or y += x if `add`, for all pairs (x, y) of tensors of equal shapes: on a GPU in few
// launches.
void copy_all(const std::vector<std::pair<Tensor, Tensor>>& pairs, bool add = false);
Tensor concat(const std::vector<Tensor>& parts, int axis);  // along an axis; a new tensor
// The counters of dropout for a slice: its row, and the counter of its first element
// (dropout_counter.h).
struct RowDraws {
  std::uint64_t row, first;  // of a slice
};
// Public randomness: booleans, true with probability `keep`; rows[n] belongs to slice n of axis 0.
Tensor bernoulli(PhiloxKey key, const std::vector<RowDraws>& rows, double keep, const Shape& shape,
                 Device device);
// y[.., k, ..] = x[.., ids[k], ..]; negative ids give zeros. Throws for ids past the end.
Tensor gather(const Tensor& x, const Tensor& ids, int axis);
// The transpose of gather: returns an axis of `size`, to which rows with equal ids are added.
Tensor scatter_add(const Tensor& x, const Tensor& ids, int axis, std::int64_t size);
// Adds x to y as scatter_add does.
void scatter_add_into(const Tensor& x, const Tensor& ids, int axis, const Tensor& y);

// Elementwise; `op` is a functor of functors.h by its index (unary_index<functors::Tanh>). Results
// are new tensors, or `into` if it is defined: a tensor of the result's shape and type, which may
// be an operand. An argument that the functor does not read may be any tensor that broadcasts to
// dy's shape.
Tensor unary(int op, const Tensor& x, Constants constants = {}, const Tensor& into = {});
// The gradient of unary(): dy times the derivative at x, where y = unary(op, x).
Tensor unary_grad(int op, const Tensor& x, const Tensor& y, const Tensor& dy, Constants constants,
                  const Tensor& into = {});
// The binary functor number `op` of operands that broadcast. They have one type, but a sum of f32
// and 16 bits is f32.
Tensor binary(int op, const Tensor& a, const Tensor& b, const Tensor& into = {});
// The gradient for operand `which`, 0 or 1, before it is summed to that operand's shape.
Tensor binary_grad(int op, int which, const Tensor& a, const Tensor& b, const Tensor& dy,
                   const Tensor& into = {});
// a where the condition is not 0, else b; broadcasting.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& into = {});
Tensor add(const Tensor& a, const Tensor& b);  // a + b, broadcasting
Tensor sub(const Tensor& a, const Tensor& b);  // a - b
Tensor mul(const Tensor& a, const Tensor& b);  // a b
Tensor scale(const Tensor& x, double factor);  // factor x
// y = alpha x + beta y, in place; beta 0 does not read y.
void axpby(double alpha, const Tensor& x, double beta, const Tensor& y);

// Reductions over `axes` (all if empty); with `keepdim` reduced axes stay with size 1, else they
// are dropped.
Tensor reduce(Reduction op, const Tensor& x, const Shape& axes, bool keepdim);
Tensor sum(const Tensor& x, const Shape& axes = {}, bool keepdim = false);  // in the type of x
// Like sum(), with an f32 result for values in f16 or bf16.
Tensor sum_f32(const Tensor& x, const Shape& axes = {}, bool keepdim = false);
// One id per element along `axis` (Backend::take_along, put_along_add). put_along returns a tensor
// of `shape`, zero where no id points. Both throw for ids outside the axis.
Tensor take_along(const Tensor& x, const Tensor& ids, int axis);
// A tensor of zeros in which x is put.
Tensor put_along(const Tensor& x, const Tensor& ids, int axis, const Shape& shape);
// Sums x over the axes that broadcasting from `shape` to x's shape added or expanded.
Tensor sum_to(const Tensor& x, const Shape& shape);
Tensor sum_to_f32(const Tensor& x, const Shape& shape);  // as sum_to, in f32 for 16 bits
// The first of the largest elements along an axis, which is dropped; i64.
Tensor argmax(const Tensor& x, int axis = -1);

// a [.., m, k] b [.., k, n]; both of rank 2, or either or both with a batch axis in front.
Tensor gemm(const Tensor& a, const Tensor& b);
// Like gemm(), with an f32 result for values in f16 or bf16.
Tensor gemm_f32(const Tensor& a, const Tensor& b);
// y[.., o, i] = sum_t b[.., t, o] a[.., t, i], of rank 2 or 3; f32 if b and a are f16 or bf16.
Tensor outer_sum(const Tensor& b, const Tensor& a);
// y += outer_sum(b, a); y may be f32 if b and a are f16 or bf16.
void outer_sum_add(const Tensor& b, const Tensor& a, const Tensor& y);

// a b + bias for matrices; bias [columns] is converted to the product's dtype.
Tensor affine(const Tensor& a, const Tensor& b, const Tensor& bias);
// Convolution of [n, c, d, h, w]; the result is channels-last. `bias` may be undefined.
Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window);
// The gradient of a convolution's input, of x_shape.
Tensor conv_data(const Tensor& dy, const Tensor& w, const Window& window, const Shape& x_shape);
// The gradient of a convolution's weight; f32 if dy is f16 or bf16.
Tensor conv_weight(const Tensor& dy, const Tensor& x, const Window& window, const Shape& w_shape);
// dw += conv_weight(..); dw must be row-major, of w_shape.
void conv_weight_add(const Tensor& dy, const Tensor& x, const Window& window, const Tensor& dw);
// The weight gradient of each sample. `*norms` receives the result of conv_weight_norms().
Tensor conv_weight_rows(const Tensor& dy, const Tensor& x, const Window& window,
                        const Shape& w_shape, Tensor* norms = nullptr);
// Squared norms [n, 3] in f64, as defined by Backend::conv_weight_norms.
Tensor conv_weight_norms(const Tensor& dy, const Tensor& x, const Window& window);
// The patches of x under the window, [n, positions, c kd kh kw].
Tensor unfold(const Tensor& x, const Window& window);

// x [n, c, d, h, w] stored in the order n d h w c; x itself if it already is.
Tensor channels_last(const Tensor& x);

}  // namespace sotto
