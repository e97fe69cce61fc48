#include "samples/models/workloads.h"

#include "autograd/ops.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/models/resnet.h"
#include "nn/models/wide_resnet.h"

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

struct StageSizes {
  std::int64_t width, groups;  // of the first stage, and of every normalisation
};

nn::ResNetOptions small_resnet(const std::vector<std::int64_t>& blocks, const StageSizes& sizes,
                               const PictureOptions& options) {
  return {.blocks = blocks,
          .width = sizes.width,
          .norm = {.group = true, .groups = sizes.groups},
          .classes = options.classes,
          .channels = options.channels,
          .large_images = false};
}

nn::Conv2d conv3x3(std::int64_t in, std::int64_t out) { return {in, out, 3, {.padding = {1}}}; }

// A pre-norm transformer block: residual attention and a residual feed-forward network.
class Block final : public nn::Module {
 public:
  Block(std::int64_t width, std::int64_t heads, bool causal)
      : norm1_(width, {.writes_16bit = true}),
        norm2_(width, {.writes_16bit = true}),
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

std::unique_ptr<nn::Module> resnet18(const PictureOptions& options) {
  return std::make_unique<nn::ResNet>(
      small_resnet({2, 2, 2, 2}, {.width = 64, .groups = 32}, options));
}

std::unique_ptr<nn::Module> resnet20(const PictureOptions& options) {
  return std::make_unique<nn::ResNet>(small_resnet({3, 3, 3}, {.width = 16, .groups = 8}, options));
}

std::unique_ptr<nn::Module> resnet50(const PictureOptions& options) {
  nn::ResNetOptions net = small_resnet({3, 4, 6, 3}, {.width = 64, .groups = 32}, options);
  net.bottleneck = true;
  return std::make_unique<nn::ResNet>(net);
}

std::unique_ptr<nn::Module> wide_resnet(const PictureOptions& options) {
  return std::make_unique<nn::WideResNet>(
      nn::WideResNetOptions{.classes = options.classes, .channels = options.channels});
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
  net->add(nn::LayerNorm(width, {.writes_16bit = true}));
  net->add(nn::Linear(width, options.words));
  return net;
}

}  // namespace sotto::models
