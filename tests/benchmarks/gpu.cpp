// Prints, as one JSON object a line, the speed of the first GPU: the median of several runs in
// microseconds, and the corresponding GFLOP/s, GB/s of memory, or images of a small network's
// steps. `bench_gpu tf32` measures operations that round f32 factors. Without a GPU it says why.
#include <string>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include "autograd/ops.h"
#include "autograd/precision.h"
#include "autograd/sink.h"
#include "core/cuda/cuda_library.h"
#include "dp/clipping/clipper.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/sampling/sampler.h"
#include "kernels/functors/functors.h"
#include "kernels/host_device/norm_formulas.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "kernels/tf32.h"
#include "memory/captured_loss.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"
#include "tests/benchmarks/timing.h"
#include "tests/support/launched_network.h"

using namespace sotto;

namespace {

constexpr Device gpu{DeviceKind::cuda, 0};

// `amount` operations or bytes of one call, in units of 1e9 a second named `unit`.
void report(const std::string& what, Dtype dtype, double amount, const char* unit,
            const std::function<void()>& run) {
  constexpr int calls = 10, repetitions = 11;
  const auto some = [&] {
    for (int i = 0; i < calls; ++i) run();
    cuda_runtime().synchronize(gpu.index);
  };
  some();
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) seconds.push_back(seconds_of(some) / calls);
  const double middle = median(seconds);
  fmt::print(
      "{{\"what\": \"{}\", \"dtype\": \"{}\", \"microseconds\": {:.2f}, \"rate\": {:.1f}, "
      "\"unit\": \"{}\"}}\n",
      what, tf32_used() ? "tf32" : name(dtype), middle * 1e6, amount / middle * 1e-9, unit);
}

// Normal numbers, which repeat after 2^20: constants may be multiplied faster than data.
Tensor some_values(const Shape& shape, Dtype dtype) {
  constexpr std::int64_t period = 1 << 20;
  static const Tensor numbers = nn::random_normal({1, period});
  const std::int64_t periods = (shape.numel() + period - 1) / period;
  const Tensor all = Tensor::empty({periods, period}, dtype, gpu);
  copy_into(to_dtype(numbers.to(gpu), dtype), all);
  return reshape(reshape(all, {periods * period}).slice(0, 0, shape.numel()), shape);
}

// Tokens times widths of GPT-2 small and ViT-B/16.
void products(Dtype dtype) {
  constexpr std::int64_t shapes[][3] = {
      {16384, 768, 2304}, {16384, 768, 3072}, {16384, 3072, 768}, {16384, 768, 50257}};
  for (const auto& [m, k, n] : shapes) {
    const Tensor a = some_values({m, k}, dtype), b = some_values({n, k}, dtype).transpose(0, 1);
    report(fmt::format("gemm {} x {} x {}", m, k, n), dtype, 2.0 * m * k * n, "GFLOP/s",
           [&] { gemm(a, b); });
  }
}

void streams(Dtype dtype) {
  const Tensor x = some_values({16384, 3072}, dtype), row = some_values({3072}, dtype);
  const auto bytes = static_cast<double>(x.bytes());
  report("copy", dtype, 2 * bytes, "GB/s", [&] { clone(x); });
  report("gelu", dtype, 2 * bytes, "GB/s", [&] { unary(unary_index<functors::Gelu>, x); });
  report("add", dtype, 3 * bytes, "GB/s", [&] { add(x, x); });
  report("add row", dtype, 2 * bytes, "GB/s", [&] { add(x, row); });
  report("sum of columns", dtype, bytes, "GB/s", [&] { sum(x, {0}); });
  report("sum of rows", dtype, bytes, "GB/s", [&] { sum(x, {1}); });
  const Tensor y = empty_like(x);
  report("softmax", dtype, 2 * bytes, "GB/s",
         [&] { backend(gpu).softmax(x.view(), false, y.view()); });
  const Tensor rows = reshape(x, {1, 16384, 1, 3072, 1}), to = reshape(y, rows.shape()),
               stats = Tensor::empty({1, 16384, 1, 2, 1}, Dtype::f64, gpu);
  report("normalize", dtype, 2 * bytes, "GB/s",
         [&] { backend(gpu).normalize({{.eps = 1e-5}}, rows.view(), stats.view(), to.view()); });
}

void convolution(Dtype dtype) {
  const Tensor x = some_values({64, 64, 1, 56, 56}, dtype),
               w = some_values({64, 64, 1, 3, 3}, dtype);
  Window window;
  for (const int axis : {1, 2}) {
    window.kernel[axis] = 3;
    window.before[axis] = window.after[axis] = 1;
  }
  const double flops = 2.0 * 64 * 56 * 56 * 64 * 64 * 9;
  report("conv", dtype, flops, "GFLOP/s", [&] { conv(x, w, {}, window); });
  if (!tf32_used())
    report("conv weight norms", dtype, flops, "GFLOP/s", [&] { conv_weight_norms(x, x, window); });
}

void gram_norms(Dtype dtype) {
  const Tensor a = some_values({32, 512, 768}, dtype), b = some_values({32, 512, 3072}, dtype);
  const Tensor norms = Tensor::empty({32}, Dtype::f64, gpu);
  report("gram norms", dtype, 2.0 * 32 * 512 * 512 * (768 + 3072), "GFLOP/s",
         [&] { backend(gpu).gram_dot(a.view(), b.view(), a.view(), b.view(), norms.view()); });
}

// Heads within positions, as projections store them: GPT-2 small's layer for 32 samples, ViT-B/16's
// for 64. Operations are those of two products forward and five backward, masked or not.
void attentions(Dtype dtype) {
  constexpr std::int64_t heads = 12, features = 64;
  for (const auto& [samples, positions, causal] :
       {std::tuple<std::int64_t, std::int64_t, bool>{32, 512, true}, {64, 197, false}}) {
    const Tensor x =
        some_values({samples, positions, heads, features}, dtype).permute({0, 2, 1, 3});
    const double product = 2.0 * samples * heads * positions * positions * features;
    const auto attend = [&, &causal = causal](bool back) {
      Tape tape;
      const Var q = tape.input(x, 0, back), k = tape.input(x, 0, back), v = tape.input(x, 0, back);
      const Var y = attention(q, k, v, {}, {.causal = causal});
      SumSink sums;
      if (back) tape.backward(sum_per_sample(cast(y, Dtype::f32)), sums);
    };
    const std::string what = fmt::format("attention {} x {}", samples, positions);
    report(what, dtype, 2 * product, "GFLOP/s", [&] { attend(false); });
    report(what + ", there and back", dtype, 7 * product, "GFLOP/s", [&] { attend(true); });
  }
}

// Steps of a small network on 512 images, which launches limit: 26,010 parameters.
class Steps {
 public:
  Steps() {
    model_.to(gpu);
    optimizer_.emplace(model_, nn::SgdRule{.learning_rate = 0.01});
  }

  void report(const char* what, const std::function<void()>& run) const {
    ::report(what, Dtype::f32, 1e9 * rows, "steps' images/s", run);
    if (!captured_.reason().empty()) fmt::print(stderr, "{}: {}\n", what, captured_.reason());
  }
  void ordinary(bool capture) {
    Tape tape;
    const Var losses = loss(tape, capture);
    SumSink sums;
    tape.backward(losses, sums, 1.0 / rows);
    optimizer_->step(sums.gradients());
  }
  void privately(bool capture) {
    Tape tape({.private_data = true});
    clipper_.add(tape, loss(tape, capture));
    mechanism_.update(clipper_.finish(sampler_.draw()), ledger_, *optimizer_);
  }

 private:
  static constexpr std::int64_t rows = 512;

  Var loss(Tape& tape, bool capture) {
    return capture ? captured_(tape, batch_) : plain_(tape, batch_);
  }

  nn::Sequential model_ = launched_network();
  std::vector<Tensor> batch_{some_values({rows, 1, 28, 28}, Dtype::f32),
                             zeros({rows}, Dtype::i64, gpu)};
  memory::CapturedLoss::Loss plain_ = [this](Tape& tape, const std::vector<Tensor>& batch) {
    return cross_entropy(model_(tape.input(batch[0])), batch[1]);
  };
  memory::CapturedLoss captured_{model_, rows, plain_};
  std::optional<nn::Sgd> optimizer_;
  Clipper clipper_{flat_group(model_.parameters(), 1.0)};
  GaussianMechanism mechanism_{1.0};
  FullBatchSampler sampler_{rows};
  Ledger ledger_;
};

void steps() {
  Steps steps;
  steps.report("ordinary step", [&] { steps.ordinary(false); });
  steps.report("ordinary step, captured", [&] { steps.ordinary(true); });
  steps.report("private step", [&] { steps.privately(false); });
  steps.report("private step, captured", [&] { steps.privately(true); });
}

}  // namespace

int main(int count, char** words) {
  const bool tf32 = count == 2 && std::string_view(words[1]) == "tf32";
  if (count != 1 && !tf32) {
    fmt::print(stderr, "usage: bench_gpu [tf32]\n");
    return 2;
  }
  use_tf32(tf32);
  if (const std::string reason = cuda_reason(); !reason.empty()) {
    fmt::print("no GPU: {}\n", reason);
    return 1;
  }
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    products(dtype);
    convolution(dtype);
    if (tf32) return 0;
    streams(dtype);
    gram_norms(dtype);
    attentions(dtype);
  }
  steps();
}
