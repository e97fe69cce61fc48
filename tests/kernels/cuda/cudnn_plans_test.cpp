// The convolutions and attentions for which cuDNN has a plan. The library itself is asked, with the
// graphs for a real GPU, about GPUs that are described to it. No GPU is needed, and no kernel runs.
// File tags: [by_hand]
#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>

#include <unistd.h>

#include "kernels/cuda/cudnn/cudnn_attention_graph.h"
#include "kernels/cuda/cudnn/cudnn_conv_graph.h"
#include "kernels/cuda/cudnn/cudnn_plans.h"
#include "tests/support/catch.h"

namespace sotto {
namespace {

struct Gpu {
  const char* name;
  int version, processors, clock, memory_clock, shared_memory;
  std::int64_t cache, memory;

  // The description in cuDNN's format.
  std::string description() const {
    std::ostringstream text;
    text << R"({"deviceName":")" << name << R"(","cudaDeviceId":0,"deviceVer":)" << version
         << R"(,"driverVer":13000,"maxGridSize":[2147483647,65535,65535],)"
         << R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":)"
         << processors << R"(,"smClockRateKHz":)" << clock << R"(,"memClockRateKHz":)"
         << memory_clock << R"(,"l2CacheSize":)" << cache
         << R"(,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":)"
         << shared_memory << R"(,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,)"
         << R"("pciDeviceId":0,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
         << R"("maxThreadsPerSM":2048,"isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":)"
         << memory << "}";
    return text.str();
  }
};

// Figures from Nvidia's data sheets and CUDA's tables of compute capabilities.
constexpr Gpu h200{"NVIDIA H200", 900, 132, 1980000, 3201000, 232448, 52428800, 150754820096};
constexpr Gpu a100{"NVIDIA A100", 800, 108, 1410000, 1215000, 166912, 41943040, 42505273344};
constexpr std::array gpus{h200, a100};

constexpr Device device{DeviceKind::cuda, 0};

View view_of(Dtype dtype, const std::vector<std::int64_t>& size) {
  View v{.data = nullptr, .dtype = dtype, .rank = static_cast<int>(size.size())};
  std::copy(size.begin(), size.end(), v.size);
  return in_order(v, false);
}

enum class Precision { f32, tf32, f16, bf16 };
constexpr std::array precisions{Precision::f32, Precision::tf32, Precision::f16, Precision::bf16};
constexpr std::array names{"f32", "tf32", "f16", "bf16"};

Dtype dtype_of(Precision precision) {
  return precision == Precision::f16    ? Dtype::f16
         : precision == Precision::bf16 ? Dtype::bf16
                                        : Dtype::f32;
}

struct Layer {
  std::int64_t channels, outputs, size, kernel, stride, padding, groups = 1;
};

ConvProblem problem_of(const Layer& layer, std::int64_t samples, ConvPass pass, Precision precision,
                       bool channels_last) {
  const Dtype dtype = dtype_of(precision);
  ConvProblem p{.pass = pass, .x = {}, .w = {}, .y = {}, .window = {}, .tf32 = false};
  p.tf32 = precision == Precision::tf32;
  for (const int axis : {1, 2}) {
    p.window.kernel[axis] = layer.kernel;
    p.window.stride[axis] = layer.stride;
    p.window.before[axis] = p.window.after[axis] = layer.padding;
  }
  p.window.groups = layer.groups;
  const std::int64_t out = p.window.output_size(1, layer.size);
  p.x =
      in_order(view_of(dtype, {samples, layer.channels, 1, layer.size, layer.size}), channels_last);
  p.w = in_order(
      view_of(dtype, {layer.outputs, layer.channels / layer.groups, 1, layer.kernel, layer.kernel}),
      channels_last);
  p.y = in_order(view_of(dtype, {samples, layer.outputs, 1, out, out}), channels_last);
  return p;
}

// Layers of ResNet-50 and of the small networks, and a depthwise one.
constexpr std::array layers{
    Layer{3, 64, 224, 7, 2, 3},     Layer{64, 64, 56, 1, 1, 0},    Layer{64, 64, 56, 3, 1, 1},
    Layer{128, 128, 56, 3, 2, 1},   Layer{1024, 256, 14, 1, 1, 0}, Layer{512, 2048, 7, 1, 1, 0},
    Layer{1024, 2048, 14, 1, 2, 0}, Layer{1, 16, 28, 8, 2, 3},     Layer{16, 32, 13, 4, 2, 0},
    Layer{3, 32, 32, 3, 1, 1},      Layer{64, 64, 14, 3, 1, 1, 64}};

std::string described(const Gpu& gpu, const Layer& l, Precision precision, ConvPass pass,
                      bool channels_last) {
  std::ostringstream text;
  text << gpu.name << ", " << names[static_cast<std::size_t>(precision)] << ", pass "
       << static_cast<int>(pass) << (channels_last ? ", channels last" : ", row-major") << ": "
       << l.channels << " to " << l.outputs << " of " << l.size << ", kernel " << l.kernel
       << ", stride " << l.stride << ", groups " << l.groups;
  return text.str();
}

bool has_plan(const Call& call, const PlanTarget& target, const ConvProblem& problem) {
  try {
    return !conv_plans(call, target, problem, false, 1).empty();
  } catch (const Unsupported& unsupported) {
    UNSCOPED_INFO(unsupported.reason);
    return false;
  }
}

TEST_CASE("cuDNN has a deterministic plan for each pass of each convolution") {
  const Call call("conv", device);
  for (const Gpu& gpu : gpus) {
    const PlanTarget target(call, gpu.description());
    for (const Layer& layer : layers) {
      for (const Precision precision : precisions) {
        for (const ConvPass pass : {ConvPass::forward, ConvPass::data, ConvPass::weight}) {
          // Row-major images are f32, as on the CPU.
          for (const bool channels_last : {true, false}) {
            if (!channels_last && precision != Precision::f32) continue;
            INFO(described(gpu, layer, precision, pass, channels_last));
            CHECK(has_plan(call, target, problem_of(layer, 32, pass, precision, channels_last)));
          }
        }
      }
    }
  }
}

struct Sizes {
  const char* name;
  std::int64_t samples, heads, queries, keys, features, values;
  bool causal, padded = false;
};

// [samples, heads, positions, features] with the heads inside of positions; `joined` such tensors
// are interleaved if the projections are joined.
View heads_of(Dtype dtype, const Sizes& s, std::int64_t positions, std::int64_t features,
              std::int64_t joined) {
  View v = view_of(dtype, {s.samples, s.heads, positions, features});
  const std::int64_t step = joined * s.heads * features;
  const std::int64_t strides[] = {positions * step, features, step, 1};
  std::copy(std::begin(strides), std::end(strides), v.stride);
  return v;
}

AttentionProblem attention_of(const Sizes& s, Dtype dtype, bool backward) {
  const std::int64_t joined = s.queries == s.keys && s.features == s.values ? 3 : 1;
  const auto heads = [&](std::int64_t positions, std::int64_t features, std::int64_t side_by_side) {
    return heads_of(dtype, s, positions, features, side_by_side);
  };
  AttentionProblem p{.forward = {.q = heads(s.queries, s.features, joined),
                                 .k = heads(s.keys, s.features, joined),
                                 .v = heads(s.keys, s.values, joined),
                                 .y = heads(s.queries, s.values, 1),
                                 .stats = view_of(Dtype::f32, {s.samples, s.heads, s.queries}),
                                 .scale = 0.125,
                                 .causal = s.causal},
                     .grad = {},
                     .backward = backward};
  if (s.padded) {
    p.forward.bias = view_of(Dtype::f32, {s.samples, 1, 1, s.keys});
    p.forward.bias.data = p.forward.bias.size;  // described, not read
  }
  p.grad = {.dy = heads(s.queries, s.values, 1),
            .dq = heads(s.queries, s.features, 1),
            .dk = heads(s.keys, s.features, 1),
            .dv = heads(s.keys, s.values, 1)};
  return p;
}

constexpr std::array attentions{Sizes{"GPT-2 small", 8, 12, 512, 512, 64, 64, true},
                                Sizes{"ViT-B/16", 32, 12, 197, 197, 64, 64, false},
                                Sizes{"a small text model", 16, 6, 128, 128, 64, 64, true},
                                Sizes{"ViT-Tiny/4", 64, 3, 65, 65, 64, 64, false},
                                Sizes{"odd lengths", 3, 2, 17, 33, 32, 32, false},
                                Sizes{"odd lengths, causal", 3, 2, 33, 33, 16, 16, true},
                                Sizes{"other values", 4, 4, 64, 64, 64, 128, false},
                                Sizes{"one head", 96, 1, 128, 128, 64, 64, true},
                                Sizes{"padded texts", 32, 12, 128, 128, 64, 64, false, true},
                                Sizes{"odd padded texts", 3, 2, 17, 33, 32, 32, false, true},
                                Sizes{"padded texts, causal", 8, 12, 512, 512, 64, 64, true, true}};

TEST_CASE("cuDNN has a plan for attention, forwards and back") {
  const Call call("attention", device);
  for (const Gpu& gpu : gpus) {
    const PlanTarget target(call, gpu.description());
    for (const Sizes& sizes : attentions) {
      for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
        // Each plan takes a second, and kernels of the two types differ in little else.
        if (dtype == Dtype::f16 && &sizes != &attentions.front() && &sizes != &attentions.back())
          continue;
        for (const bool backward : {false, true}) {
          INFO(gpu.name << ", " << name(dtype) << (backward ? ", back: " : ": ") << sizes.name);
          const auto plans = attention_plans(call, target, attention_of(sizes, dtype, backward), 1);
          REQUIRE(plans.size() == 1);
          if (!backward) continue;
          // The workspace holds the gradients of scores; without them, sums over keys have no fixed
          // order.
          const auto workspace = plans[0].read<std::int64_t>(
              call, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1);
          CHECK(workspace[0] >= 2 * sizes.samples * sizes.heads * sizes.queries * sizes.keys);
        }
      }
    }
  }
}

TEST_CASE("cuDNN has no plan for numbers of features that its kernels do not support") {
  const Call call("attention", device);
  const PlanTarget target(call, h200.description());
  Sizes sizes = attentions[0];
  sizes.features = sizes.values = 60;
  for (const bool backward : {false, true})
    CHECK(attention_plans(call, target, attention_of(sizes, Dtype::bf16, backward), 1).empty());
}

// What f() writes to stderr.
template <class F>
std::string told_by(const F& f) {
  std::fflush(stderr);
  const int before = dup(STDERR_FILENO);
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  dup2(fileno(file), STDERR_FILENO);
  f();
  std::fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
  std::string text(static_cast<std::size_t>(std::ftell(file)), ' ');
  std::rewind(file);
  CHECK(std::fread(text.data(), 1, text.size(), file) == text.size());
  std::fclose(file);
  return text;
}

TEST_CASE("a graph that cuDNN calls wrong has no plan, which is told once") {
  ConvProblem wrong = problem_of(layers[2], 32, ConvPass::forward, Precision::f32, true);
  wrong.y.size[4] += 3;
  wrong.y = in_order(wrong.y, true);
  const Call call("conv", device, {&wrong.x, &wrong.w, &wrong.y});
  const PlanTarget target(call, h200.description());
  const auto find = [&] {
    return std::make_unique<Descriptor>(conv_plans(call, target, wrong, false, 1).at(0));
  };
  const std::string told = told_by([&] {
    for (int k = 0; k < 2; ++k) CHECK(plan_or_none(call, find) == nullptr);
  });
  CHECK(told.starts_with("sotto: cuda:0: conv of f32 (32, 64, 1, 56, 56), f32 ("));
  CHECK(told.ends_with("; done by products\n"));
  CHECK(std::count(told.begin(), told.end(), '\n') == 1);
  // One that it does not support is nothing to tell.
  const auto unsupported = []() -> std::unique_ptr<Descriptor> { throw Unsupported{"a reason"}; };
  CHECK(told_by([&] { CHECK(plan_or_none(call, unsupported) == nullptr); }).empty());
}

}  // namespace
}  // namespace sotto
