#include "samples/models/workloads.h"

#include <cmath>
#include <optional>

#include "autograd/ops.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/functional.h"
#include "nn/init.h"
#include "samples/models/resnet.h"

namespace sotto::models {

namespace {

// Averages over the given axes.
class MeanOver final : public nn::Module {
 public:
  explicit MeanOver(const Shape& axes) : axes_(axes) {}
  Var forward(const Var& x) override { return mean(x, axes_); }

 private:
  Shape axes_;
};

nn::Conv2d conv3x3(std::int64_t in, std::int64_t out) { return {in, out, 3, {.padding = {1}}}; }

// A convolution whose weights are standardised and divided by the root of the fan-in, with a gain
// and a bias for each output channel (Brock et al. 2021, "Characterizing signal propagation to
// close the performance gap in unnormalized ResNets", section 4).
class StandardizedConv final : public nn::Module {
 public:
  StandardizedConv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride)
      : inner_(in, out, kernel, {.stride = {stride}, .padding = {kernel / 2}}),
        gain_(std::make_unique<Parameter>(full({out, 1, 1, 1}, 1))) {
    inner_.weight->value = nn::kaiming_normal(inner_.weight->value.shape(), {.gain = 1});
    inner_.bias->value = full({out}, 0);
  }
  Var forward(const Var& x) override {
    constexpr double min_variance = 1e-4;  // of the weights times the fan-in (De et al. 2022)
    Tape& tape = x.tape();
    const auto fan_in = static_cast<double>(nn::fans(inner_.weight->value.shape()).in);
    const Var w = nn::standardized_weight(tape.use(*inner_.weight), min_variance / fan_in,
                                          tape.use(*gain_) * (1 / std::sqrt(fan_in)));
    return conv(x, w, tape.use(*inner_.bias), inner_.options());
  }
  void visit(const nn::Visitor& visitor) override {
    inner_.visit(visitor);
    visitor("gain", gain_);
  }

 private:
  nn::Conv2d inner_;
  std::unique_ptr<Parameter> gain_;  // [out, 1, 1, 1]
};

// relu(x' + norm(conv(relu(norm(conv(x)))))), with x' as in Bottleneck.
class BasicBlock final : public nn::Module {
 public:
  BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride, std::int64_t groups)
      : first_(in, out, 3, stride, groups), second_(out, out, 3, 1, groups) {
    if (stride != 1 || in != out) shortcut_.emplace(in, out, 1, stride, groups);
  }
  Var forward(const Var& x) override {
    const Var y = second_(relu(first_(x)));
    return relu(y + (shortcut_ ? (*shortcut_)(x) : x));
  }
  void visit(const nn::Visitor& visitor) override {
    visitor("first", first_);
    visitor("second", second_);
    if (shortcut_) visitor("shortcut", *shortcut_);
  }

 private:
  NormedConv first_, second_;
  std::optional<NormedConv> shortcut_;
};

constexpr std::int64_t wide_groups = 16;

// conv(norm(relu(x))), whose norm comes after the activation (De et al. 2022).
class ReluNormConv final : public nn::Module {
 public:
  ReluNormConv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride)
      : norm_(wide_groups, in), conv_(in, out, kernel, stride) {}
  Var forward(const Var& x) override { return conv_(norm_(relu(x))); }
  void visit(const nn::Visitor& visitor) override {
    visitor("norm", norm_);
    visitor("conv", conv_);
  }

 private:
  nn::GroupNorm norm_;
  StandardizedConv conv_;
};

// second(first(x)) + x, or + shortcut(x) where the width changes; each with a norm of its own.
class WideBlock final : public nn::Module {
 public:
  WideBlock(std::int64_t in, std::int64_t out, std::int64_t stride)
      : first_(in, out, 3, stride), second_(out, out, 3, 1) {
    if (in != out) shortcut_.emplace(in, out, 1, stride);
  }
  Var forward(const Var& x) override {
    const Var y = second_(first_(x));
    return y + (shortcut_ ? (*shortcut_)(x) : x);
  }
  void visit(const nn::Visitor& visitor) override {
    visitor("first", first_);
    visitor("second", second_);
    if (shortcut_) visitor("shortcut", *shortcut_);
  }

 private:
  ReluNormConv first_, second_;
  std::optional<ReluNormConv> shortcut_;
};

// A pre-norm transformer block: residual attention and a residual feed-forward network.
class Block final : public nn::Module {
 public:
  Block(std::int64_t width, std::int64_t heads, bool causal)
      : norm1_(width),
        norm2_(width),
        attention_(width, heads, {.batch_first = true}),
        up_(width, 4 * width),
        down_(4 * width, width),
        causal_(causal) {}
  Var forward(const Var& x) override {
    const Var a = norm1_(x);
    const Var y = x + attention_.forward(a, a, a, {.causal = causal_});
    return y + down_(gelu(up_(norm2_(y))));
  }
  void visit(const nn::Visitor& visitor) override {
    visitor("norm1", norm1_);
    visitor("attention", attention_);
    visitor("norm2", norm2_);
    visitor("up", up_);
    visitor("down", down_);
  }

 private:
  nn::LayerNorm norm1_, norm2_;
  nn::MultiheadAttention attention_;
  nn::Linear up_, down_;
  bool causal_;
};

// Reshapes [n, c, h, w] to [n, h w, c].
class Tokens final : public nn::Module {
 public:
  Var forward(const Var& x) override { return transpose(flatten(x, 2, -1), 1, 2); }
};

}  // namespace

std::unique_ptr<nn::Module> cifar_network(const PictureOptions& options,
                                          CifarActivation activation) {
  auto net = std::make_unique<nn::Sequential>();
  std::int64_t channels = options.channels;
  const auto add = [&](std::int64_t width) {
    net->add(conv3x3(channels, width));
    if (activation == CifarActivation::tanh)
      net->add(nn::Tanh());
    else
      net->add(nn::Relu());
    channels = width;
  };
  for (const std::int64_t width : {32, 64, 128}) {
    add(width);
    add(width);
    net->add(nn::AvgPool2d(2, 2));
  }
  add(256);
  net->add(conv3x3(channels, options.classes));
  net->add(MeanOver({2, 3}));
  return net;
}

std::unique_ptr<nn::Module> embedding_network() {
  return std::make_unique<nn::Sequential>(
      nn::Sequential{nn::Embedding(imdb_rows, 16), MeanOver({1}), nn::Linear(16, 2)});
}

std::unique_ptr<nn::Module> lstm_network() {
  constexpr std::int64_t width = 100;
  return std::make_unique<nn::Sequential>(
      nn::Sequential{nn::Embedding(imdb_rows, width), nn::LSTM(width, width, {.batch_first = true}),
                     MeanOver({1}), nn::Linear(width, 2)});
}

namespace {

// Stages of so many basic blocks each: of the given width at first, and of twice that of the stage
// before.
struct BasicStages {
  std::int64_t stages, blocks, width, groups;
};
std::unique_ptr<nn::Module> basic_resnet(const PictureOptions& options, const BasicStages& of) {
  auto net = std::make_unique<nn::Sequential>();
  net->add(NormedConv(options.channels, of.width, 3, 1, of.groups));
  net->add(nn::Relu());
  std::int64_t channels = of.width;
  for (std::int64_t stage = 0; stage < of.stages; ++stage) {
    const std::int64_t width = of.width << stage;
    for (std::int64_t block = 0; block < of.blocks; ++block) {
      net->add(BasicBlock(channels, width, stage > 0 && block == 0 ? 2 : 1, of.groups));
      channels = width;
    }
  }
  net->add(MeanOver({2, 3}));
  net->add(nn::Linear(channels, options.classes));
  return net;
}

}  // namespace

std::unique_ptr<nn::Module> resnet18(const PictureOptions& options) {
  return basic_resnet(options, {.stages = 4, .blocks = 2, .width = 64, .groups = 32});
}

std::unique_ptr<nn::Module> resnet20(const PictureOptions& options) {
  return basic_resnet(options, {.stages = 3, .blocks = 3, .width = 16, .groups = 8});
}

std::unique_ptr<nn::Module> wide_resnet(const PictureOptions& options) {
  auto net = std::make_unique<nn::Sequential>();
  net->add(StandardizedConv(options.channels, 16, 3, 1));
  std::int64_t channels = 16;
  for (const std::int64_t width : {64, 128, 256}) {
    net->add(WideBlock(channels, width, width == 64 ? 1 : 2));
    net->add(WideBlock(width, width, 1));
    channels = width;
  }
  net->add(nn::Relu());
  net->add(nn::GroupNorm(wide_groups, channels));
  net->add(MeanOver({2, 3}));
  nn::Linear classifier(channels, options.classes);
  classifier.weight->value = nn::kaiming_normal(classifier.weight->value.shape(), {.gain = 1});
  classifier.bias->value = full({options.classes}, 0);
  net->add(std::move(classifier));
  return net;
}

std::unique_ptr<nn::Module> vision_transformer(const VisionOptions& options) {
  const std::int64_t width = options.width, patches = options.side / options.patch;
  auto net = std::make_unique<nn::Sequential>();
  net->add(nn::Conv2d(options.channels, width, options.patch, {.stride = {options.patch}}));
  net->add(Tokens());
  net->add(nn::PositionalEmbedding(patches * patches, width));
  for (int k = 0; k < options.blocks; ++k) net->add(Block(width, options.heads, false));
  net->add(nn::LayerNorm(width));
  net->add(MeanOver({1}));
  net->add(nn::Linear(width, options.classes));
  return net;
}

std::unique_ptr<nn::Module> causal_transformer(const CausalOptions& options) {
  const std::int64_t width = options.width;
  auto net = std::make_unique<nn::Sequential>();
  net->add(nn::Embedding(options.words, width));
  net->add(nn::PositionalEmbedding(options.length, width));
  for (int k = 0; k < options.blocks; ++k) net->add(Block(width, options.heads, true));
  net->add(nn::LayerNorm(width));
  net->add(nn::Linear(width, options.words));
  return net;
}

}  // namespace sotto::models
