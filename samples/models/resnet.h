// Residual networks.
#pragma once

#include <optional>

#include "nn/layers.h"

namespace sotto::models {

// A convolution without bias, followed by group normalisation (Wu and He 2018): each sample has its
// own statistics, as private training requires.
class NormedConv final : public nn::Module {
 public:
  NormedConv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
             std::int64_t groups);
  Var forward(const Var& x) override;
  void visit(const nn::Visitor& visitor) override;

 private:
  nn::Conv2d conv_;
  nn::GroupNorm norm_;
};

// relu(x' + expand(relu(middle(relu(reduce(x)))))): convolutions 1x1, 3x3 (with the stride), and
// 1x1 to four times the width; x' is x, or a 1x1 convolution of it if the shapes differ (He et al.
// 2016, figure 5).
class Bottleneck final : public nn::Module {
 public:
  // Output channels of a block over its width.
  static constexpr std::int64_t expansion = 4;

  Bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride, std::int64_t groups);
  Var forward(const Var& x) override;
  void visit(const nn::Visitor& visitor) override;

 private:
  NormedConv reduce_, middle_, expand_;
  std::optional<NormedConv> shortcut_;
};

struct ResNetOptions {
  // The number of blocks in each stage; a stage has twice the width of the one before, and half its
  // height and width in pixels. The defaults are ResNet-50's.
  std::vector<std::int64_t> blocks = {3, 4, 6, 3};
  std::int64_t width = 64;   // of the first stage
  std::int64_t groups = 32;  // of every normalisation
  std::int64_t classes = 10;
  std::int64_t channels = 3;  // of the images
  // For images of about 224x224 pixels: the stem is a 7x7 convolution with stride 2 and 3x3 max
  // pooling with stride 2 (He et al. 2016). Otherwise for 32x32: one 3x3 convolution with stride 1,
  // as is usual for CIFAR-10.
  bool large_images = false;
};

// Classifies [n, channels, h, w]; returns logits [n, classes]. ResNet-50 has 23,520,842 parameters.
class ResNet final : public nn::Module {
 public:
  // Throws std::invalid_argument unless `groups` divides `width`.
  explicit ResNet(const ResNetOptions& options = {});
  Var forward(const Var& x) override;
  void visit(const nn::Visitor& visitor) override;
  // All blocks in order.
  nn::Sequential& blocks() { return blocks_; }

 private:
  NormedConv stem_;
  std::optional<nn::MaxPool2d> pool_;
  nn::Sequential blocks_;
  nn::Linear classifier_;
};

}  // namespace sotto::models
