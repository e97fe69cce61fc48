// Prints, as one JSON object a line, how fast the CPU's engines compute products and convolutions:
// the fastest of several repetitions in GFLOP/s (a multiplication and an addition count as two).
#include <string>
#include <vector>

#include <fmt/format.h>

#include "sotto/core/parallel.h"
#include "sotto/kernels/compute.h"
#include "tests/benchmarks/timing.h"

using namespace sotto;

namespace {

void report(const std::string& what, double flops, const std::function<void()>& run) {
  const double seconds = fastest_seconds(run);
  fmt::print(
      "{{\"engine\": \"{}\", \"threads\": {}, \"what\": \"{}\", \"gflops\": {:.1f}, "
      "\"microseconds\": {:.1f}}}\n",
      backend(cpu).name(), thread_count(), what, flops / seconds * 1e-9, seconds * 1e6);
}

struct Image {
  std::int64_t channels, side, outputs, kernel, stride, padding;
};

Tensor images(std::int64_t n, std::int64_t channels, std::int64_t side) {
  const Tensor x =
      Tensor::empty_ordered({n, channels, 1, side, side}, {0, 2, 3, 4, 1}, Dtype::f32, cpu);
  backend(cpu).fill(0.5, x.view());
  return x;
}

void convolution(std::int64_t n, const Image& s) {
  Window window;
  for (int axis = 1; axis < 3; ++axis) {
    window.kernel[axis] = s.kernel;
    window.stride[axis] = s.stride;
    window.before[axis] = window.after[axis] = s.padding;
  }
  const std::int64_t out = window.output_size(1, s.side);
  const Tensor x = images(n, s.channels, s.side), y = images(n, s.outputs, out);
  const Shape one{s.outputs, s.channels, 1, s.kernel, s.kernel};
  Shape each = one;
  each.insert(0, n);
  const Tensor w = full(one, 0.5), bias = zeros({s.outputs}), rows = zeros(each);
  const double flops = 2.0 * static_cast<double>(n * out * out * w.numel());
  const std::string name =
      fmt::format("{} x {} x {} x {}, kernel {} stride {} padding {} -> {}", n, s.channels, s.side,
                  s.side, s.kernel, s.stride, s.padding, s.outputs);
  Backend& b = backend(cpu);
  report(name + " conv", flops, [&] { b.conv(x.view(), w.view(), bias.view(), window, y.view()); });
  report(name + " conv_data", flops, [&] { b.conv_data(y.view(), w.view(), window, x.view()); });
  report(name + " conv_weight", flops,
         [&] { b.conv_weight(y.view(), x.view(), window, 0, w.view()); });
  report(name + " conv_weight_rows", flops,
         [&] { b.conv_weight_rows(y.view(), x.view(), window, rows.view()); });
}

void product(std::int64_t batch, std::int64_t m, std::int64_t k, std::int64_t n) {
  const Tensor a = full({batch, m, k}, 0.5), b = full({batch, k, n}, 0.5), c = zeros({batch, m, n});
  const Tensor at = full({batch, k, m}, 0.5), bt = full({batch, n, k}, 0.5);
  const double flops = 2.0 * static_cast<double>(batch * m * k * n);
  const std::string name = fmt::format("{} of {} x {} x {}", batch, m, k, n);
  const auto run = [&](const char* form, const Tensor& left, const Tensor& right) {
    report(fmt::format("{} gemm {}", name, form), flops,
           [&] { backend(cpu).gemm(left.view(), right.view(), 0, c.view()); });
  };
  run("NN", a, b);
  run("NT", a, bt.transpose(1, 2));
  run("TN", at.transpose(1, 2), b);
}

}  // namespace

int main() {
  for (const CpuEngine engine : {CpuEngine::eigen, CpuEngine::onednn}) {
    if (!has_cpu_engine(engine)) continue;
    set_cpu_engine(engine);
    convolution(256, {1, 28, 16, 8, 2, 3});
    convolution(256, {16, 13, 32, 4, 2, 0});
    convolution(256, {3, 32, 32, 3, 1, 1});
    convolution(256, {32, 32, 32, 3, 1, 1});
    convolution(128, {128, 8, 128, 3, 1, 1});
    product(1, 512, 784, 256);
    product(1, 64, 104, 50);
    product(256, 16, 196, 64);
    product(256, 16, 196, 16);
    product(256, 8, 8, 8);
  }
}
