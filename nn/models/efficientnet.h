// EfficientNet-lite (Tan and Le 2019, without squeeze and excitation and with ReLU6), with the
// names of the package efficientnet_lite_pytorch, _blocks.0._depthwise_conv, or those of timm.
#pragma once

#include <string>
#include <vector>

#include "nn/layers/dense_layers.h"
#include "nn/models/normed_conv.h"
#include "nn/models/pretrained_model.h"

namespace sotto::nn {

// An inverted residual block (Sandler et al. 2018).
struct InvertedResidualOptions {
  std::int64_t in = 1, out = 1;  // channels
  std::int64_t inner = 1;        // channels of the depthwise convolution
  std::int64_t kernel = 3;       // of the depthwise convolution
  std::int64_t stride = 1;       // of the depthwise convolution
};

struct EfficientNetOptions {
  std::int64_t stem = 32;  // channels of the first convolution
  std::vector<std::vector<InvertedResidualOptions>> stages = {};  // blocks, by stages
  std::int64_t features = 1280;                                   // what the classifier takes
  std::int64_t classes = 1000;                                    // of the logits
  std::int64_t channels = 3;                                      // of the images
  ConvNorm norm = {.eps = 1e-3};                                  // behind every convolution
  bool timm_names = false;  // the names of timm: conv_stem, blocks.0.0.conv_dw, classifier
  // Padding as TensorFlow has it, which depends on the size (ConvOptions::same); else half a kernel
  // on all sides.
  bool same_padding = true;
  double dropout = 0;    // in front of the classifier
  double drop_path = 0;  // the branch of block k of K has this rate times k / K
};

// Returns the options of efficientnet_lite0 to efficientnet_lite4. Throws std::invalid_argument for
// another name.
EfficientNetOptions parse_efficientnet(const std::string& name);

// Classifies images [n, channels, h, w], (x - 127) / 128 of bytes x: logits [n, classes].
// EfficientNet-lite0 has 4,652,008 parameters and 42,016 statistics.
class EfficientNet final : public ImageModel {
 public:
  // Throws std::invalid_argument unless the blocks follow each other.
  explicit EfficientNet(const EfficientNetOptions& options);
  Var classify(const Var& features) override;
  void visit(const Visitor& visitor) override;
  ModelParts parts() const override;

 private:
  Var stem(const Var& images) override;
  Var through(const Var& x, std::int64_t begin, std::int64_t end) override;
  Var pooled(const Var& x) override;

  NormedConv stem_, head_;
  Sequential blocks_;  // with timm's names: the stages
  std::unique_ptr<Module> fc_;
  std::vector<std::int64_t> stages_;  // numbers of blocks
  bool timm_names_;
  double dropout_;
};

}  // namespace sotto::nn
