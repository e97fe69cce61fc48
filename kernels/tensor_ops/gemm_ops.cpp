// The matrix products of tensor_ops.h.
#include "kernels/operand_device.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

Shape product_shape(const Tensor& a, const Tensor& b) {
  check((a.rank() == 2 || a.rank() == 3) && (b.rank() == 2 || b.rank() == 3),
        "gemm: ranks {} and {} are not 2 or 3", a.rank(), b.rank());
  check_same_type("gemm", a, b);
  check(a.size(-1) == b.size(-2), "gemm: inner sizes differ: {} x {}", a.shape(), b.shape());
  Shape shape{a.size(-2), b.size(-1)};
  if (a.rank() == 3 || b.rank() == 3) {
    const std::int64_t batch = a.rank() == 3 ? a.size(0) : b.size(0);
    check(a.rank() == 2 || b.rank() == 2 || b.size(0) == batch, "gemm: batches differ: {} x {}",
          a.shape(), b.shape());
    shape.insert(0, batch);
  }
  return shape;
}

View with_batch(const Tensor& x, const Shape& product) {
  if (x.rank() == product.rank()) return x.view();
  return x.expand({product[0], x.size(0), x.size(1)}).view();
}

Tensor product(const Tensor& a, const Tensor& b, Dtype dtype) {
  if (on_different_devices(a, b)) return product(to_device_of(a, b), to_device_of(b, a), dtype);
  const Shape shape = product_shape(a, b);
  Tensor c = Tensor::empty(shape, dtype, a.device());
  backend_of(a).gemm(with_batch(a, shape), with_batch(b, shape), 0, c.view());
  return c;
}

}  // namespace

Tensor gemm(const Tensor& a, const Tensor& b) { return product(a, b, a.dtype()); }
Tensor gemm_f32(const Tensor& a, const Tensor& b) {
  return product(a, b, arithmetic_type(a.dtype()));
}

Tensor affine(const Tensor& a, const Tensor& b, const Tensor& bias) {
  if (on_different_devices(a, b)) return affine(to_device_of(a, b), to_device_of(b, a), bias);
  const Shape shape = product_shape(a, b);
  check(shape.rank() == 2 && bias.shape() == Shape{shape[1]},
        "affine: bias {} does not fit the product {}", bias.shape(), shape);
  Tensor c = Tensor::empty(shape, a.dtype(), a.device());
  const Tensor added = to_dtype(bias.to(a.device()), a.dtype());
  backend_of(a).affine(a.view(), b.view(), reshape(added, {1, shape[1]}).view(), c.view());
  return c;
}

Tensor outer_sum(const Tensor& b, const Tensor& a) { return gemm_f32(b.transpose(-1, -2), a); }

void outer_sum_add(const Tensor& b, const Tensor& a, const Tensor& y) {
  if (on_different_devices(a, b)) return outer_sum_add(to_device_of(b, a), to_device_of(a, b), y);
  const Tensor columns = b.transpose(-1, -2);
  const Shape shape = product_shape(columns, a);
  check(y.shape() == shape && (y.dtype() == a.dtype() || y.dtype() == arithmetic_type(a.dtype())),
        "outer_sum: the result is {} of {}, the product {} of {}", y.shape(), name(y.dtype()),
        shape, name(a.dtype()));
  backend_of(a).gemm(with_batch(columns, shape), with_batch(a, shape), 1, y.view());
}

}  // namespace sotto
