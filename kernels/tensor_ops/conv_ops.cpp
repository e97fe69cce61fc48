// The image operations of tensor_ops.h.
#include "kernels/operand_device.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

const Shape channels_last_order{0, 2, 3, 4, 1};

}  // namespace

Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window) {
  if (on_different_devices(x, w)) return conv(to_device_of(x, w), to_device_of(w, x), bias, window);
  if (bias.defined() && on_different_devices(x, bias))
    return conv(x, w, to_device_of(bias, x), window);
  Shape shape{x.size(0), w.size(0), 0, 0, 0};
  for (int i = 0; i < 3; ++i) shape[2 + i] = window.output_size(i, x.size(2 + i));
  Tensor y = Tensor::empty_ordered(shape, channels_last_order, x.dtype(), x.device());
  backend_of(x).conv(x.view(), w.view(), bias.view(), window, y.view());
  return y;
}

Tensor conv_data(const Tensor& dy, const Tensor& w, const Window& window, const Shape& x_shape) {
  Tensor dx = Tensor::empty_ordered(x_shape, channels_last_order, dy.dtype(), dy.device());
  backend_of(dy).conv_data(dy.view(), w.view(), window, dx.view());
  return dx;
}

Tensor conv_weight(const Tensor& dy, const Tensor& x, const Window& window, const Shape& w_shape) {
  Tensor dw = Tensor::empty(w_shape, arithmetic_type(dy.dtype()), dy.device());
  backend_of(dy).conv_weight(dy.view(), x.view(), window, 0, dw.view());
  return dw;
}

void conv_weight_add(const Tensor& dy, const Tensor& x, const Window& window, const Tensor& dw) {
  backend_of(dy).conv_weight(dy.view(), x.view(), window, 1, dw.view());
}

Tensor conv_weight_rows(const Tensor& dy, const Tensor& x, const Window& window,
                        const Shape& w_shape, Tensor* norms) {
  Shape shape = w_shape;
  shape.insert(0, dy.size(0));
  Tensor dw = Tensor::empty(shape, arithmetic_type(dy.dtype()), dy.device());
  if (norms) *norms = Tensor::empty({dy.size(0), 3}, Dtype::f64, dy.device());
  backend_of(dy).conv_weight_rows(dy.view(), x.view(), window, dw.view(),
                                  norms ? norms->view() : View{});
  return dw;
}

Tensor conv_weight_norms(const Tensor& dy, const Tensor& x, const Window& window) {
  Tensor y = Tensor::empty({dy.size(0), 3}, Dtype::f64, dy.device());
  backend_of(dy).conv_weight_norms(dy.view(), x.view(), window, y.view());
  return y;
}

Tensor unfold(const Tensor& x, const Window& window) {
  std::int64_t positions = 1;
  for (int i = 0; i < 3; ++i) positions *= window.output_size(i, x.size(2 + i));
  Tensor patches =
      Tensor::empty({x.size(0), positions, x.size(1) * window.positions()}, x.dtype(), x.device());
  backend_of(x).unfold(x.view(), window, patches.view());
  return patches;
}

Tensor channels_last(const Tensor& x) {
  if (x.permute(channels_last_order).contiguous()) return x;
  Tensor y = Tensor::empty_ordered(x.shape(), channels_last_order, x.dtype(), x.device());
  backend_of(x).copy(x.view(), y.view());
  return y;
}

}  // namespace sotto
