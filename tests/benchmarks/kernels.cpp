// Prints, as one JSON object a line, the speed of products and convolutions on the CPU's engines:
// the fastest of several repetitions in GFLOP/s (a multiplication and an addition count as two),
// and as a fraction of the processor's multiply-adds from registers, timed in turn with it. Shapes
// of private training on both engines; or, as `bench_kernels large`, large ones on the default
// engine, whose factors have the type that is given behind it. `bench_kernels quantized` sets
// products with quantised blocks beside those in f32, and times those of one token of SmolLM2-135M.
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/threads/parallel.h"
#include "kernels/backend.h"
#include "kernels/quantized/quantized.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/benchmarks/fma_peak.h"
#include "tests/benchmarks/timing.h"
#include "tests/support/random_blocks.h"

using namespace sotto;

namespace {

// Operations a second by multiply-adds from registers, the maximum so far: other load may lower a
// fraction, but not raise it. 0 if no unit is known.
double ceiling() {
  static const FmaUnit unit = widest_fma();
  static double max = 0;
  if (!unit.run) return 0;
  double flops = 0;
  const double seconds = seconds_of([&] { flops = run_fma(unit, thread_count()); });
  return max = std::max(max, flops / seconds);
}

// Repeats `run` in turn with the ceiling, for a second and seven times at least.
void report(const std::string& what, double flops, const std::function<void()>& run) {
  constexpr double min_time = 1;
  constexpr int min_repetitions = 7;
  run();
  double best = 0, possible = 0, spent = 0;
  for (int k = 0; k < min_repetitions || spent < min_time; ++k) {
    possible = ceiling();
    const double seconds = seconds_of(run);
    best = std::max(best, flops / seconds);
    spent += seconds;
  }
  fmt::print(
      "{{\"engine\": \"{}\", \"threads\": {}, \"what\": \"{}\", \"gflops\": {:.1f}, "
      "\"microseconds\": {:.1f}, \"fraction\": {}}}\n",
      backend(cpu).name(), thread_count(), what, best * 1e-9, flops / best * 1e6,
      possible > 0 ? fmt::format("{:.3f}", best / possible) : "null");
}

struct Image {
  std::int64_t channels, side, outputs, kernel, stride, padding;
};

Tensor images(std::int64_t n, std::int64_t channels, std::int64_t side, Dtype dtype) {
  const Tensor x = Tensor::empty_ordered({n, channels, 1, side, side}, {0, 2, 3, 4, 1}, dtype, cpu);
  backend(cpu).fill(0.5, x.view());
  return x;
}

// "", or the type of factors in 16 bits.
std::string in_type(Dtype dtype) {
  return dtype == Dtype::f32 ? "" : fmt::format(" {}", name(dtype));
}

// Weight gradients are f32.
void convolution(std::int64_t n, const Image& s, Dtype dtype = Dtype::f32) {
  Window window;
  for (int axis = 1; axis < 3; ++axis) {
    window.kernel[axis] = s.kernel;
    window.stride[axis] = s.stride;
    window.before[axis] = window.after[axis] = s.padding;
  }
  const std::int64_t out = window.output_size(1, s.side);
  const Tensor x = images(n, s.channels, s.side, dtype), y = images(n, s.outputs, out, dtype);
  const Shape one{s.outputs, s.channels, 1, s.kernel, s.kernel};
  Shape each = one;
  each.insert(0, n);
  const Tensor w = full(one, 0.5, dtype), dw = zeros(one), bias = zeros({s.outputs}),
               rows = zeros(each);
  const double flops = 2.0 * static_cast<double>(n * out * out * w.numel());
  const std::string name =
      fmt::format("{} x {} x {} x {}, kernel {} stride {} padding {} -> {}{}", n, s.channels,
                  s.side, s.side, s.kernel, s.stride, s.padding, s.outputs, in_type(dtype));
  Backend& b = backend(cpu);
  report(name + " conv", flops, [&] { b.conv(x.view(), w.view(), bias.view(), window, y.view()); });
  report(name + " conv_data", flops, [&] { b.conv_data(y.view(), w.view(), window, x.view()); });
  report(name + " conv_weight", flops,
         [&] { b.conv_weight(y.view(), x.view(), window, 0, dw.view()); });
  report(name + " conv_weight_rows", flops,
         [&] { b.conv_weight_rows(y.view(), x.view(), window, rows.view(), View{}); });
  const Tensor norms = zeros({n, 3}, Dtype::f64);
  report(name + " conv_weight_norms", flops,
         [&] { b.conv_weight_norms(y.view(), x.view(), window, norms.view()); });
}

void product(std::int64_t batch, std::int64_t m, std::int64_t k, std::int64_t n,
             Dtype dtype = Dtype::f32) {
  const auto matrices = [&](std::int64_t rows, std::int64_t columns) {
    return full({batch, rows, columns}, 0.5, dtype);
  };
  const Tensor a = matrices(m, k), b = matrices(k, n), c = matrices(m, n);
  const Tensor at = matrices(k, m), bt = matrices(n, k);
  const double flops = 2.0 * static_cast<double>(batch * m * k * n);
  const std::string name = fmt::format("{} of {} x {} x {}{}", batch, m, k, n, in_type(dtype));
  const auto run = [&](const char* form, const Tensor& left, const Tensor& right) {
    report(fmt::format("{} gemm {}", name, form), flops,
           [&] { backend(cpu).gemm(left.view(), right.view(), 0, c.view()); });
  };
  run("NN", a, b);
  run("NT", a, bt.transpose(1, 2));
  run("TN", at.transpose(1, 2), b);
  run("TT", at.transpose(1, 2), bt.transpose(1, 2));
}

void private_shapes() {
  convolution(256, {1, 28, 16, 8, 2, 3});
  convolution(256, {16, 13, 32, 4, 2, 0});
  convolution(256, {3, 32, 32, 3, 1, 1});
  convolution(256, {32, 32, 32, 3, 1, 1});
  convolution(128, {128, 8, 128, 3, 1, 1});
  convolution(128, {256, 4, 256, 3, 1, 1});
  product(1, 512, 104, 1);
  product(1, 104, 512, 1);
  product(1, 512, 104, 50);
  product(1, 400, 8192, 100);
  product(1, 512, 784, 256);
  product(1, 64, 104, 50);
  product(256, 16, 196, 64);
  product(256, 16, 196, 16);
  product(256, 8, 8, 8);
}

// Square products, a batch of them, and the 3x3 convolutions in the second and fourth stage of a
// ResNet for images of 224x224 (He et al. 2016a, table 1).
void large_shapes(Dtype dtype) {
  product(1, 1024, 1024, 1024, dtype);
  product(1, 2048, 2048, 2048, dtype);
  product(16, 512, 512, 512, dtype);
  convolution(8, {64, 56, 64, 3, 1, 1}, dtype);
  convolution(32, {256, 14, 256, 3, 1, 1}, dtype);
}

// Forward and to the input, by blocks and by the widened matrix in turn.
void quantized_product(const BlockMatrix& w, std::int64_t n) {
  const Tensor wide = dequantize(w), x = full({n, w.columns()}, 0.5), dy = full({n, w.rows()}, 0.5);
  const std::function<void()> runs[] = {
      [&] { multiply_blocks(x, w); }, [&] { gemm(x, wide.transpose(0, 1)); },
      [&] { multiply_blocks_transposed(dy, w); }, [&] { gemm(dy, wide); }};
  constexpr int repetitions = 15;
  double best[4] = {1e9, 1e9, 1e9, 1e9};
  for (int k = 0; k < repetitions; ++k) {
    for (int run = 0; run < 4; ++run) best[run] = std::min(best[run], seconds_of(runs[run]));
  }
  fmt::print(
      "{{\"what\": \"{} {} x {}, {} rows\", \"threads\": {}, \"forward_us\": {:.1f}, "
      "\"f32_forward_us\": {:.1f}, \"input_us\": {:.1f}, \"f32_input_us\": {:.1f}, \"bytes\": {}, "
      "\"f32_bytes\": {}}}\n",
      name(w.format), w.rows(), w.columns(), n, thread_count(), best[0] * 1e6, best[1] * 1e6,
      best[2] * 1e6, best[3] * 1e6, w.bytes.bytes(), wide.bytes());
}

// The products of one token: 30 layers of Q4_1 matrices, and a Q8_0 table as the output layer.
void one_token(PublicRandom& random) {
  std::vector<BlockMatrix> all;
  for (int layer = 0; layer < 30; ++layer) {
    for (const auto& [rows, columns] : {std::pair(576, 576),
                                        {192, 576},
                                        {192, 576},
                                        {576, 576},
                                        {1536, 576},
                                        {1536, 576},
                                        {576, 1536}})
      all.push_back(random_blocks(random, BlockFormat::q4_1, rows, columns));
  }
  all.push_back(random_blocks(random, BlockFormat::q8_0, 49152, 576));
  const double seconds = fastest_seconds([&] {
    for (const BlockMatrix& w : all) multiply_blocks(full({1, w.columns()}, 0.5), w);
  });
  fmt::print(
      "{{\"what\": \"one token of SmolLM2-135M\", \"threads\": {}, \"milliseconds\": {:.2f}}}\n",
      thread_count(), seconds * 1e3);
}

void quantized_shapes() {
  PublicRandom random(1);
  one_token(random);
  for (const BlockFormat format : block_formats) {
    // 576 values are not whole blocks of 256.
    const std::int64_t width = block_size(format).values == 32 ? 576 : 512;
    for (const auto& [rows, columns] :
         {std::pair<std::int64_t, std::int64_t>(576, width), {576, 1536}, {49152, width}}) {
      const BlockMatrix w = random_blocks(random, format, rows, columns);
      for (const std::int64_t n : {1, 16, 256}) quantized_product(w, n);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view shapes = argc > 1 ? argv[1] : "", type = argc > 2 ? argv[2] : "f32";
  if (shapes == "large" && argc <= 3) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
      if (name(dtype) == type) {
        large_shapes(dtype);
        return 0;
      }
    }
  }
  if (shapes == "quantized" && argc == 2) {
    quantized_shapes();
    return 0;
  }
  if (argc > 1) {
    fmt::print(stderr, "usage: bench_kernels [large [f32|bf16|f16] | quantized]\n");
    return 2;
  }
  for (const CpuEngine engine : {CpuEngine::portable, CpuEngine::onednn}) {
    if (!has_cpu_engine(engine)) continue;
    set_cpu_engine(engine);
    private_shapes();
  }
}
