// The LSTM primitive: the devices' code against the CPU's, and both against the definition.
// File tags: [sanitized][simd]
#include "kernels/host_device/lstm_layer.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

// The operands of a layer, with random values; outputs hold NaN.
struct Layer {
  Tensor gates, states, cells, tanh_cell, weight, bias;
  bool reverse;

  Layer(Random& random, std::int64_t n, std::int64_t t, std::int64_t h, Dtype dtype)
      : reverse(random() % 2 == 0) {
    const auto row_major = [&](const Shape& shape) {
      Shape order;
      for (int i = 0; i < shape.rank(); ++i) order.push_back(i);
      return random_tensor(random, shape, order, dtype);
    };
    gates = row_major({n, t, 4 * h});
    states = unwritten({n, t + 1, h}, dtype);
    cells = unwritten({n, t + 1, h}, dtype);
    for (const Tensor& x : {states, cells})
      copy_into(row_major({n, h}), x.select(1, reverse ? t : 0));
    tanh_cell = unwritten({n, t, h}, dtype);
    weight = row_major({4 * h, h});
    if (random() % 3 != 0) bias = row_major({4 * h});
  }
  LstmLayer view() const {
    return {gates.view(),  states.view(), cells.view(), tanh_cell.view(),
            weight.view(), bias.view(),   reverse};
  }
  Layer copy() const {
    Layer y = *this;
    for (Tensor* const x : {&y.gates, &y.states, &y.cells, &y.tanh_cell}) *x = clone(*x);
    return y;
  }
};

// Calls test(layer, random) for layers of many sizes, including empty ones.
template <class Test>
void for_random_layers(Test&& test) {
  Random random(31);
  for (int round = 0; round < 40; ++round) {
    const Dtype dtype = round % 2 == 0 ? Dtype::f32 : Dtype::f64;
    const std::int64_t n = between(random, 0, 40), t = between(random, 0, 4),
                       h = between(random, 1, 19);
    INFO(n << " samples, " << t << " steps, " << h << " units");
    test(Layer(random, n, t, h, dtype), random);
  }
}

constexpr Tensor Layer::*written[] = {&Layer::gates, &Layer::states, &Layer::cells,
                                      &Layer::tanh_cell};

}  // namespace

TEST_CASE("device code: LSTM layers", "[gpu]") {
  for_random_layers([](const Layer& layer, Random&) {
    for (const auto which : written) {
      check_on_devices(layer.*which, [&](Backend& b, const View& y) {
        Layer own = layer.copy();
        LstmLayer views = own.view();
        (which == written[0]   ? views.gates
         : which == written[1] ? views.states
         : which == written[2] ? views.cells
                               : views.tanh_cell) = y;
        b.lstm(views);
      });
    }
  });
}

TEST_CASE("device code: gradients of LSTM layers", "[gpu]") {
  for_random_layers([](const Layer& drawn, Random& random) {
    const Layer layer = drawn.copy();
    backend(cpu).lstm(layer.view());
    const std::int64_t n = layer.tanh_cell.size(0), t = layer.tanh_cell.size(1),
                       h = layer.tanh_cell.size(2);
    const Dtype dtype = layer.gates.dtype();
    const Tensor wide = random_tensor(random, {n, t + 2, h}, {0, 1, 2}, dtype),
                 dy = wide.slice(1, 1, t + 1),
                 dstate = random_tensor(random, {n, h}, {0, 1}, dtype),
                 dcell = random_tensor(random, {n, h}, {0, 1}, dtype);
    check_on_devices(unwritten({n, t, 4 * h}, dtype), [&](Backend& b, const View& dz) {
      b.lstm_grad(layer.view(), dy.view(), dz, clone(dstate).view(), clone(dcell).view(), {});
    });
    const Tensor dz = unwritten({n, t, 4 * h}, dtype);
    for_each_device_code([&] {
      const Tensor squares = unwritten({n, t}, Dtype::f64);
      backend(cpu).lstm_grad(layer.view(), dy.view(), dz.view(), clone(dstate).view(),
                             clone(dcell).view(), squares.view());
      const Tensor wide = to_dtype(dz, Dtype::f64), expected = sum(mul(wide, wide), {2});
      for (std::int64_t i = 0; i < n * t; ++i)
        CHECK(squares.view().as<double>()[i] ==
              Approx(expected.view().as<double>()[i]).epsilon(1e-6));
    });
    check_on_devices(dstate, [&](Backend& b, const View& y) {
      b.lstm_grad(layer.view(), dy.view(), dz.view(), y, clone(dcell).view(), {});
    });
    check_on_devices(dcell, [&](Backend& b, const View& y) {
      b.lstm_grad(layer.view(), dy.view(), dz.view(), clone(dstate).view(), y, {});
    });
  });
}

TEST_CASE("an LSTM layer is what its definition says") {
  for_random_layers([](const Layer& drawn, Random&) {
    const Layer layer = drawn.copy();
    backend(cpu).lstm(layer.view());
    const std::int64_t n = layer.tanh_cell.size(0), steps = layer.tanh_cell.size(1),
                       h = layer.tanh_cell.size(2);
    const auto wide = [](const Tensor& x) { return to_dtype(x, Dtype::f64); };
    const auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
    const Tensor states = zeros({n, steps + 1, h}, Dtype::f64), cells = zeros_like(states);
    const LstmLayer order = layer.view();
    const std::int64_t first = layer.reverse ? steps : 0;
    copy_into(wide(layer.states.select(1, first)), states.select(1, first));
    copy_into(wide(layer.cells.select(1, first)), cells.select(1, first));
    for (std::int64_t k = 0; k < steps; ++k) {
      const std::int64_t t = order.step(k);
      Tensor z = add(wide(drawn.gates.select(1, t)),
                     gemm(states.select(1, order.before(t)), wide(layer.weight).transpose(0, 1)));
      if (layer.bias.defined()) z = add(z, wide(layer.bias));
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t j = 0; j < h; ++j) {
          const auto sum = [&](std::int64_t gate) {
            return z.select(0, i).select(0, gate * h + j).item();
          };
          const double before = cells.select(0, i).select(0, order.before(t)).select(0, j).item();
          const double cell = sigmoid(sum(1)) * before + sigmoid(sum(0)) * std::tanh(sum(2));
          const std::int64_t at = (i * (steps + 1) + order.after(t)) * h + j;
          set_value(cells, at, cell);
          set_value(states, at, sigmoid(sum(3)) * std::tanh(cell));
        }
      }
    }
    check_close(layer.states, values(states));
    check_close(layer.cells, values(cells));
  });
}
