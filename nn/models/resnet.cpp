#include "nn/models/resnet.h"

#include <algorithm>
#include <map>
#include <optional>

#include "autograd/ops/elementwise.h"
#include "autograd/ops/reductions.h"

namespace sotto::nn {

namespace {

// The output channels of a stage's blocks.
std::int64_t stage_outputs(const ResNetOptions& options, std::int64_t width) {
  constexpr std::int64_t expansion = 4;  // of a bottleneck
  return options.bottleneck ? expansion * width : width;
}

// A shortcut that is a 1x1 convolution, "0", and its norm, "1".
class Downsample final : public Module {
 public:
  explicit Downsample(NormedConv inner) : inner_(std::move(inner)) {}
  Var forward(const Var& x) override { return inner_(x); }
  void visit(const Visitor& visitor) override;

 private:
  NormedConv inner_;
};

// relu(x' + y): y are convolutions of x with ReLU between them; x' is x, or its Downsample if the
// shapes differ. The stride is that of the 3x3 convolution.
class ResidualBlock final : public Module {
 public:
  // A block of a stage of this width.
  ResidualBlock(std::int64_t in, std::int64_t width, std::int64_t stride,
                const ResNetOptions& options);
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override;

 private:
  std::vector<NormedConv> branch_;
  std::optional<Downsample> downsample_;
};

void check_options(const ResNetOptions& options) {
  constexpr std::int64_t max_width = 1 << 16, max_stages = 8;
  check(!options.blocks.empty() && std::ssize(options.blocks) <= max_stages, "ResNet: {} stages",
        options.blocks.size());
  for (const std::int64_t blocks : options.blocks)
    check(blocks >= 1, "ResNet: a stage of {} blocks", blocks);
  check(options.width >= 1 && options.width <= max_width && options.widening >= 1 &&
            options.widening <= max_width,
        "ResNet: width {}, widening {}", options.width, options.widening);
}

void Downsample::visit(const Visitor& visitor) {
  visitor("0", inner_.conv);
  visitor("1", inner_.norm);
}

ResidualBlock::ResidualBlock(std::int64_t in, std::int64_t width, std::int64_t stride,
                             const ResNetOptions& options) {
  const std::int64_t out = stage_outputs(options, width);
  const ConvNorm& norm = options.norm;
  const auto add = [&](std::int64_t from, std::int64_t to, std::int64_t kernel,
                       const ConvOptions& conv) {
    branch_.emplace_back(from, to, kernel, conv, norm);
  };
  if (options.bottleneck) {
    const std::int64_t inner = options.widening * width;
    add(in, inner, 1, {});
    add(inner, inner, 3, {.stride = {stride}, .padding = {1}, .groups = options.conv_groups});
    add(inner, out, 1, {});
  } else {
    add(in, out, 3, {.stride = {stride}, .padding = {1}});
    add(out, out, 3, {.padding = {1}});
  }
  if (stride != 1 || in != out)
    downsample_.emplace(NormedConv(in, out, 1, {.stride = {stride}}, norm));
}

Var ResidualBlock::forward(const Var& x) {
  Var y = branch_[0](x);
  for (std::size_t k = 1; k < branch_.size(); ++k) y = branch_[k](relu(std::move(y)));
  return relu(std::move(y) + (downsample_ ? (*downsample_)(x) : x));
}

void ResidualBlock::visit(const Visitor& visitor) {
  for (std::size_t k = 0; k < branch_.size(); ++k) {
    visitor("conv" + std::to_string(k + 1), branch_[k].conv);
    visitor("bn" + std::to_string(k + 1), branch_[k].norm);
  }
  if (downsample_) visitor("downsample", *downsample_);
}

}  // namespace

ResNetOptions parse_resnet(const std::string& name) {
  const std::vector<std::int64_t> short_stages{3, 4, 6, 3}, long_stages{3, 4, 23, 3};
  const std::map<std::string, ResNetOptions> known{
      {"resnet18", {}},
      {"resnet34", {.blocks = short_stages}},
      {"resnet50", {.blocks = short_stages, .bottleneck = true}},
      {"resnet101", {.blocks = long_stages, .bottleneck = true}},
      {"resnet152", {.blocks = {3, 8, 36, 3}, .bottleneck = true}},
      {"wide_resnet50_2", {.blocks = short_stages, .bottleneck = true, .widening = 2}},
      {"wide_resnet101_2", {.blocks = long_stages, .bottleneck = true, .widening = 2}}};
  const auto found = known.find(name);
  check(found != known.end(), "ResNet: none is called {}", name);
  return found->second;
}

ResNet::ResNet(const ResNetOptions& options) : pooled_(options.large_images) {
  check_options(options);
  const bool large = options.large_images;
  stem_ = NormedConv(options.channels, options.width, large ? 7 : 3,
                     {.stride = {large ? 2 : 1}, .padding = {large ? 3 : 1}}, options.norm);
  std::int64_t in = options.width, width = options.width;
  for (const std::int64_t blocks : options.blocks) {
    Sequential& stage = stages_.emplace_back();
    for (std::int64_t block = 0; block < blocks; ++block) {
      const bool halves = stages_.size() > 1 && block == 0;
      stage.add(ResidualBlock(in, width, halves ? 2 : 1, options));
      in = stage_outputs(options, width);
    }
    width *= 2;
  }
  fc_ = std::make_unique<Linear>(in, options.classes);
}

Var ResNet::stem(const Var& images) {
  Var y = relu(stem_(images));
  return pooled_ ? max_pool(y, {.kernel = {3}, .stride = {2}, .padding = {1}}) : y;
}

Var ResNet::through(const Var& x, std::int64_t begin, std::int64_t end) {
  std::vector<Sequential*> stages;
  for (Sequential& stage : stages_) stages.push_back(&stage);
  return through_stages(stages, x, begin, end);
}

Var ResNet::pooled(const Var& x) { return mean(x, {2, 3}); }

Var ResNet::classify(const Var& features) { return (*fc_)(features); }

void ResNet::visit(const Visitor& visitor) {
  visitor("conv1", stem_.conv);
  visitor("bn1", stem_.norm);
  for (std::size_t k = 0; k < stages_.size(); ++k)
    visitor("layer" + std::to_string(k + 1), stages_[k]);
  visitor("fc", fc_);
}

ModelParts ResNet::parts() const {
  ModelParts parts{.embeddings = {"conv1", "bn1"}, .head = {"fc"}};
  for (std::size_t k = 0; k < stages_.size(); ++k) {
    for (int block = 0; block < stages_[k].size(); ++block)
      parts.listed.push_back("layer" + std::to_string(k + 1) + "." + std::to_string(block));
  }
  parts.block_count = std::ssize(parts.listed);
  return parts;
}

}  // namespace sotto::nn
