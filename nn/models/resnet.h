// Residual networks (He et al. 2016), with the names and strides of torchvision.
#pragma once

#include <vector>

#include "nn/layers/conv_pool_layers.h"
#include "nn/layers/dense_layers.h"
#include "nn/models/normed_conv.h"
#include "nn/models/pretrained_model.h"

namespace sotto::nn {

// The defaults are ResNet-18's.
struct ResNetOptions {
  // The number of blocks in each stage. A stage has twice the width of the one before, and half its
  // height and width in pixels.
  std::vector<std::int64_t> blocks = {2, 2, 2, 2};
  // Blocks of three convolutions, the last of which is four times as wide as the stage; otherwise
  // of two.
  bool bottleneck = false;
  std::int64_t width = 64;  // of the stem and the first stage
  // The inner convolutions of a bottleneck are so many times as wide as the stage (Zagoruyko and
  // Komodakis 2016), and the 3x3 one has so many groups (Xie et al. 2017).
  std::int64_t widening = 1, conv_groups = 1;
  ConvNorm norm = {};           // behind every convolution
  std::int64_t classes = 1000;  // of the logits
  std::int64_t channels = 3;    // of the images
  // For images of about 224x224 pixels: the stem is a 7x7 convolution with stride 2 and 3x3 max
  // pooling with stride 2. Otherwise, for 32x32, one 3x3 convolution with stride 1.
  bool large_images = true;
};

// Returns the options of resnet18, resnet34, resnet50, resnet101, resnet152, wide_resnet50_2 or
// wide_resnet101_2. Throws std::invalid_argument for another name.
ResNetOptions parse_resnet(const std::string& name);

// Classifies images [n, channels, h, w]: logits [n, classes]. ResNet-50 has 25,557,032 parameters
// and 53,120 statistics.
class ResNet final : public ImageModel {
 public:
  // Throws std::invalid_argument unless every stage has a block, and the groups divide the widths.
  explicit ResNet(const ResNetOptions& options = {});
  Var classify(const Var& features) override;
  void visit(const Visitor& visitor) override;
  ModelParts parts() const override;

 private:
  Var stem(const Var& images) override;
  Var through(const Var& x, std::int64_t begin, std::int64_t end) override;
  Var pooled(const Var& x) override;

  NormedConv stem_;
  bool pooled_;
  std::vector<Sequential> stages_;
  std::unique_ptr<Module> fc_;
};

}  // namespace sotto::nn
