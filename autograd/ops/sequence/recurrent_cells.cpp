#include "autograd/ops/sequence/recurrent_cells.h"

#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

template <class F>
Tensor apply(const Tensor& x) {
  return unary(unary_index<F>, x);
}

// Block k of `count` blocks of columns.
Tensor block(const Tensor& x, int k, int count) {
  const std::int64_t hidden = x.size(1) / count;
  return x.slice(1, k * hidden, (k + 1) * hidden);
}

// dy y (1 - y), for y = sigmoid.
Tensor through_sigmoid(const Tensor& dy, const Tensor& y) { return mul(dy, sub(y, mul(y, y))); }
// dy (1 - y^2), for y = tanh.
Tensor through_tanh(const Tensor& dy, const Tensor& y) { return sub(dy, mul(dy, mul(y, y))); }

CellStep lstm_step(const Tensor& x_part, const Tensor& h_part, const Tensor& c) {
  const Tensor z = add(x_part, h_part);
  const Tensor i = apply<functors::Sigmoid>(block(z, 0, 4)),
               f = apply<functors::Sigmoid>(block(z, 1, 4)),
               g = apply<functors::Tanh>(block(z, 2, 4)),
               o = apply<functors::Sigmoid>(block(z, 3, 4));
  const Tensor next = add(mul(f, c), mul(i, g));
  const Tensor tanh_cell = apply<functors::Tanh>(next);
  return {{i, f, g, o, c, tanh_cell}, mul(o, tanh_cell), next};
}

CellGradient lstm_gradient(const CellStep& step, const Tensor& dh, const Tensor& dc) {
  const Tensor &i = step.saved[0], &f = step.saved[1], &g = step.saved[2], &o = step.saved[3],
               &c = step.saved[4], &tanh_cell = step.saved[5];
  const Tensor d = add(dc, through_tanh(mul(dh, o), tanh_cell));
  const Tensor z = concat({through_sigmoid(mul(d, g), i), through_sigmoid(mul(d, c), f),
                           through_tanh(mul(d, i), g), through_sigmoid(mul(dh, tanh_cell), o)},
                          1);
  return {z, z, Tensor(), mul(d, f)};
}

CellStep gru_step(const Tensor& x_part, const Tensor& h_part, const Tensor& h) {
  const Tensor r = apply<functors::Sigmoid>(add(block(x_part, 0, 3), block(h_part, 0, 3)));
  const Tensor z = apply<functors::Sigmoid>(add(block(x_part, 1, 3), block(h_part, 1, 3)));
  const Tensor inner = block(h_part, 2, 3);
  const Tensor n = apply<functors::Tanh>(add(block(x_part, 2, 3), mul(r, inner)));
  return {{r, z, n, inner, h}, add(n, mul(z, sub(h, n))), Tensor()};
}

CellGradient gru_gradient(const CellStep& step, const Tensor& dh) {
  const Tensor &r = step.saved[0], &z = step.saved[1], &n = step.saved[2], &inner = step.saved[3],
               &h = step.saved[4];
  const Tensor kept = mul(dh, z);
  const Tensor dn = through_tanh(sub(dh, kept), n);
  const Tensor dz = through_sigmoid(mul(dh, sub(h, n)), z);
  const Tensor dr = through_sigmoid(mul(dn, inner), r);
  return {concat({dr, dz, dn}, 1), concat({dr, dz, mul(dn, r)}, 1), kept, Tensor()};
}

}  // namespace

CellStep cell_step(Cell cell, const Tensor& x_part, const Tensor& h_part, const Tensor& h,
                   const Tensor& c) {
  if (cell == Cell::lstm) return lstm_step(x_part, h_part, c);
  if (cell == Cell::gru) return gru_step(x_part, h_part, h);
  const Tensor sum = add(x_part, h_part);
  const Tensor y = cell == Cell::tanh ? apply<functors::Tanh>(sum) : apply<functors::Relu>(sum);
  return {{y}, y, Tensor()};
}

CellGradient cell_gradient(Cell cell, const CellStep& step, const Tensor& dh, const Tensor& dc) {
  if (cell == Cell::lstm) return lstm_gradient(step, dh, dc);
  if (cell == Cell::gru) return gru_gradient(step, dh);
  const Tensor& y = step.saved[0];
  const Tensor d = cell == Cell::tanh ? through_tanh(dh, y)
                                      : unary_grad(unary_index<functors::Relu>, y, y, dh, {});
  return {d, d, Tensor(), Tensor()};
}

}  // namespace sotto
