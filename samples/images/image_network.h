// Networks for pictures.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/module.h"
#include "samples/images/features.h"

namespace sotto::images {

struct ImageNetworkOptions {
  std::string model = "scattering";  // of network_names()
  PictureShape shape = {};           // of the pictures
  std::int64_t classes = 10;
  FeatureOptions features = {};  // for scattering
};

// "scattering": a linear layer on features that are not learned (Tramer and Boneh 2021). "cnn":
// convolutions with tanh (Papernot et al. 2021). "resnet18", "resnet20", "resnet50" and "wrn-16-4":
// residual networks with group normalisation, the last with standardised weights and pictures (De
// et al. 2022). "vit-tiny": a transformer over patches of 4 x 4 pixels.
std::vector<std::string> network_names();

// Throws std::invalid_argument for a side that the network cannot have, and for numbers out of
// range.
void check_network(const ImageNetworkOptions& options);
// Logits [n, classes] of NetworkInputs.
std::unique_ptr<nn::Module> make_network(const ImageNetworkOptions& options);

// The network's inputs for pictures [n, c, size, size]: themselves, or for scattering their
// features.
class NetworkInputs {
 public:
  explicit NetworkInputs(const ImageNetworkOptions& options);
  Tensor operator()(const Tensor& pictures) const;

 private:
  std::optional<Features> features_;
};

}  // namespace sotto::images
