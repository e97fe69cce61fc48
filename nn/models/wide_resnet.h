// Wide residual networks (Zagoruyko and Komodakis 2016) in the form that trains privately from
// scratch. Torchvision's wide_resnet50_2 is a ResNet (resnet.h).
#pragma once

#include <vector>

#include "nn/layers/norm_layers.h"
#include "nn/models/pretrained_model.h"

namespace sotto::nn {

// The defaults are WRN-16-4's.
struct WideResNetOptions {
  std::int64_t depth = 16;    // 6 k + 4: three stages of k blocks
  std::int64_t widening = 4;  // the stages have 16, 32 and 64 times so many channels
  std::int64_t groups = 16;   // of every normalisation
  std::int64_t classes = 10;  // of the logits
  std::int64_t channels = 3;  // of the images
};

// A classifier as De et al. 2022 train it privately ("Unlocking high-accuracy differentially
// private image classification through scale", appendix A): standardised weights over the root of
// their fan-in with gains and biases, and group normalisation after each activation. Images
// [n, channels, h, w] are to be standardised.
class WideResNet final : public ImageModel {
 public:
  // Initial values come from nn::init_random(). Throws std::invalid_argument for another depth.
  explicit WideResNet(const WideResNetOptions& options = {});
  Var classify(const Var& features) override;
  void visit(const Visitor& visitor) override;
  ModelParts parts() const override;

 private:
  Var stem(const Var& images) override;
  Var through(const Var& x, std::int64_t begin, std::int64_t end) override;
  Var pooled(const Var& x) override;

  std::unique_ptr<Module> conv_;
  Sequential blocks_;
  std::unique_ptr<GroupNorm> norm_;
  std::unique_ptr<Module> fc_;
};

}  // namespace sotto::nn
