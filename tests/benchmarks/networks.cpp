#include "tests/benchmarks/networks.h"

#include "samples/models.h"
#include "sotto/autograd/ops.h"
#include "sotto/core/philox.h"
#include "sotto/kernels/compute.h"
#include "sotto/nn/functional.h"

namespace sotto {

namespace {

constexpr std::int64_t adult_features = 104;
constexpr std::int64_t imdb_rows = 10'004, imdb_ids = 10'000, imdb_length = 256;

// Averages over axes of each sample.
class MeanOver final : public nn::Module {
 public:
  explicit MeanOver(const Shape& axes) : axes_(axes) {}
  Var forward(const Var& x) override { return mean(x, axes_); }

 private:
  Shape axes_;
};

nn::Conv2d conv3x3(std::int64_t in, std::int64_t out, std::int64_t stride = 1, bool bias = true) {
  return {in, out, 3, {.stride = {stride}, .padding = {1}, .bias = bias}};
}

std::unique_ptr<nn::Module> cifar_network() {
  auto net = std::make_unique<nn::Sequential>();
  std::int64_t channels = 3;
  for (const std::int64_t width : {32, 64, 128}) {
    for (int k = 0; k < 2; ++k) {
      net->add(conv3x3(channels, width));
      net->add(nn::Relu());
      channels = width;
    }
    net->add(nn::AvgPool2d(2, 2));
  }
  net->add(conv3x3(channels, 256));
  net->add(nn::Relu());
  net->add(conv3x3(256, 10));
  net->add(MeanOver({2, 3}));
  return net;
}

// A convolution by standardised weights (Qiao et al. 2019), without bias.
class StandardizedConv final : public nn::Module {
 public:
  StandardizedConv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride)
      : inner_(in, out, kernel, {.stride = {stride}, .padding = {kernel / 2}, .bias = false}) {}
  Var forward(const Var& x) override {
    const Var w = nn::standardized_weight(x.tape().use(*inner_.weight));
    return conv(x, w, std::nullopt, inner_.options());
  }
  void visit(const nn::Visitor& visitor) override { inner_.visit(visitor); }

 private:
  nn::Conv2d inner_;
};

// relu(norm(conv)) twice with a shortcut, the norms after the convolutions (He et al. 2016a).
class BasicBlock final : public nn::Module {
 public:
  BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride)
      : conv1_(conv3x3(in, out, stride, false)),
        conv2_(conv3x3(out, out, 1, false)),
        norm1_(groups, out),
        norm2_(groups, out) {
    if (stride == 1 && in == out) return;
    shortcut_.add(nn::Conv2d(in, out, 1, {.stride = {stride}, .bias = false}));
    shortcut_.add(nn::GroupNorm(groups, out));
  }
  Var forward(const Var& x) override {
    const Var y = norm2_(conv2_(relu(norm1_(conv1_(x)))));
    return relu(y + (shortcut_.size() > 0 ? shortcut_(x) : x));
  }
  void visit(const nn::Visitor& visitor) override {
    visitor("conv1", conv1_);
    visitor("norm1", norm1_);
    visitor("conv2", conv2_);
    visitor("norm2", norm2_);
    visitor("shortcut", shortcut_);
  }

 private:
  static constexpr std::int64_t groups = 32;
  nn::Conv2d conv1_, conv2_;
  nn::GroupNorm norm1_, norm2_;
  nn::Sequential shortcut_;
};

// For 32x32 images: a 3x3 stem and no first pooling.
std::unique_ptr<nn::Module> resnet18() {
  auto net = std::make_unique<nn::Sequential>();
  net->add(conv3x3(3, 64, 1, false));
  net->add(nn::GroupNorm(32, 64));
  net->add(nn::Relu());
  std::int64_t channels = 64;
  for (const std::int64_t width : {64, 128, 256, 512}) {
    net->add(BasicBlock(channels, width, width == 64 ? 1 : 2));
    net->add(BasicBlock(width, width, 1));
    channels = width;
  }
  net->add(MeanOver({2, 3}));
  net->add(nn::Linear(512, 10));
  return net;
}

// conv(relu(norm)) twice with a shortcut (He et al. 2016b), the weights standardised.
class WideBlock final : public nn::Module {
 public:
  WideBlock(std::int64_t in, std::int64_t out, std::int64_t stride)
      : conv1_(in, out, 3, stride), conv2_(out, out, 3, 1), norm1_(16, in), norm2_(16, out) {
    if (in != out) shortcut_.add(StandardizedConv(in, out, 1, stride));
  }
  Var forward(const Var& x) override {
    const Var a = relu(norm1_(x));
    const Var y = conv2_(relu(norm2_(conv1_(a))));
    return y + (shortcut_.size() > 0 ? shortcut_(a) : x);
  }
  void visit(const nn::Visitor& visitor) override {
    visitor("norm1", norm1_);
    visitor("conv1", conv1_);
    visitor("norm2", norm2_);
    visitor("conv2", conv2_);
    visitor("shortcut", shortcut_);
  }

 private:
  StandardizedConv conv1_, conv2_;
  nn::GroupNorm norm1_, norm2_;
  nn::Sequential shortcut_;
};

// As De et al. 2022 train it privately.
std::unique_ptr<nn::Module> wide_resnet() {
  auto net = std::make_unique<nn::Sequential>();
  net->add(StandardizedConv(3, 16, 3, 1));
  std::int64_t channels = 16;
  for (const std::int64_t width : {64, 128, 256}) {
    net->add(WideBlock(channels, width, width == 64 ? 1 : 2));
    net->add(WideBlock(width, width, 1));
    channels = width;
  }
  net->add(nn::GroupNorm(16, 256));
  net->add(nn::Relu());
  net->add(MeanOver({2, 3}));
  net->add(nn::Linear(256, 10));
  return net;
}

// Norm first, residual around attention and around the feed-forward network.
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

// [n, c, h, w] to [n, h w, c].
class Tokens final : public nn::Module {
 public:
  Var forward(const Var& x) override { return transpose(flatten(x, 2, -1), 1, 2); }
};

// Patches of 4x4 of 32x32 images, 64 tokens of 192 (Dosovitskiy et al. 2021, Touvron et al. 2021),
// averaged at the end.
std::unique_ptr<nn::Module> vit_tiny() {
  constexpr std::int64_t width = 192;
  auto net = std::make_unique<nn::Sequential>();
  net->add(nn::Conv2d(3, width, 4, {.stride = {4}}));
  net->add(Tokens());
  net->add(nn::PositionalEmbedding(64, width));
  for (int k = 0; k < 12; ++k) net->add(Block(width, 3, false));
  net->add(nn::LayerNorm(width));
  net->add(MeanOver({1}));
  net->add(nn::Linear(width, 10));
  return net;
}

constexpr std::int64_t gpt_length = 128, characters = 65;

// Characters, as small models of that kind are usually shown (Radford et al. 2019, smaller).
std::unique_ptr<nn::Module> gpt() {
  constexpr std::int64_t width = 384;
  auto net = std::make_unique<nn::Sequential>();
  net->add(nn::Embedding(characters, width));
  net->add(nn::PositionalEmbedding(gpt_length, width));
  for (int k = 0; k < 6; ++k) net->add(Block(width, 6, true));
  net->add(nn::LayerNorm(width));
  net->add(nn::Linear(width, characters));
  return net;
}

std::vector<Workload> small_networks() {
  return {
      {.name = "logreg",
       .make = [] { return std::make_unique<nn::Linear>(adult_features, 1); },
       .input = {adult_features},
       .classes = 1},
      {.name = "ffnn",
       .make =
           [] {
             return std::make_unique<nn::Sequential>(
                 nn::Sequential{nn::Linear(adult_features, 50), nn::Relu(), nn::Linear(50, 2)});
           },
       .input = {adult_features}},
      {.name = "mnist",
       .make = [] { return std::make_unique<models::MnistNetwork>("relu"); },
       .input = {1, 28, 28},
       .classes = 10},
      {.name = "cifar10", .make = cifar_network, .input = {3, 32, 32}, .classes = 10},
      {.name = "embed",
       .make =
           [] {
             return std::make_unique<nn::Sequential>(
                 nn::Sequential{nn::Embedding(imdb_rows, 16), MeanOver({1}), nn::Linear(16, 2)});
           },
       .input = {imdb_length},
       .vocabulary = imdb_ids},
      {.name = "lstm",
       .make =
           [] {
             return std::make_unique<nn::Sequential>(nn::Sequential{
                 nn::Embedding(imdb_rows, 100), nn::LSTM(100, 100, {.batch_first = true}),
                 MeanOver({1}), nn::Linear(100, 2)});
           },
       .input = {imdb_length},
       .vocabulary = imdb_ids},
  };
}

std::vector<Workload> all_networks() {
  std::vector<Workload> all = small_networks();
  all.push_back({.name = "resnet18", .make = resnet18, .input = {3, 32, 32}, .classes = 10});
  all.push_back({.name = "wrn16", .make = wide_resnet, .input = {3, 32, 32}, .classes = 10});
  all.push_back({.name = "vit", .make = vit_tiny, .input = {3, 32, 32}, .classes = 10});
  all.push_back({.name = "gpt2",
                 .make = gpt,
                 .input = {gpt_length},
                 .vocabulary = characters,
                 .classes = characters,
                 .per_position = true});
  return all;
}

Tensor random_ids(const Shape& shape, std::int64_t below, PublicRandom& random) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(shape.numel()));
  for (std::int64_t& id : ids) id = random.below(below);
  return Tensor::from(ids, shape);
}

Tensor uniform_values(const Shape& shape, PublicRandom& random) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (float& value : values) value = static_cast<float>(random.uniform());
  return Tensor::from(values, shape);
}

}  // namespace

Workload::Batch Workload::random_batch(std::int64_t samples, std::uint64_t seed) const {
  PublicRandom random(seed);
  Shape shape = input;
  shape.insert(0, samples);
  const Tensor inputs =
      vocabulary > 0 ? random_ids(shape, vocabulary, random) : uniform_values(shape, random);
  const Shape labelled = per_position ? Shape{samples, input[0]} : Shape{samples};
  return {inputs, random_ids(labelled, std::max<std::int64_t>(2, classes), random)};
}

Var Workload::losses(const Var& logits, const Tensor& targets) const {
  if (classes == 1) {
    const Tensor labels = to_dtype(targets, Dtype::f32).unsqueeze(1);
    return binary_cross_entropy_with_logits(logits, logits.tape().input(labels));
  }
  return cross_entropy(logits, targets, {.class_axis = per_position ? 2 : 1});
}

const std::vector<Workload>& workloads() {
  static const std::vector<Workload> all = all_networks();
  return all;
}

}  // namespace sotto
