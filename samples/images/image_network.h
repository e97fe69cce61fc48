// Networks for pictures.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dp/engine/standardize.h"
#include "nn/module.h"
#include "samples/images/features.h"
#include "samples/images/started_network.h"

namespace sotto::images {

struct ImageNetworkOptions {
  std::string model = "scattering";  // of network_names()
  PictureShape shape = {};           // of the pictures
  std::int64_t classes = 10;
  FeatureOptions features = {};  // for scattering
  bool standardize = false;      // for scattering: its channels, by private statistics
  samples::Start start = {};     // of the model `pretrained`
  std::int64_t input_size = 0;   // that pretrained ones resize pictures to; 0: their own
  std::string norms = "frozen";  // what becomes of batch norms: of stored_norm_names()
  bool cached = false;           // inputs are the values of a pretrained one's frozen trunk
  std::string layers = {};       // of a pretrained one: see StartedOptions

  bool is_pretrained() const { return !start.init.empty(); }
  bool scatters() const { return model.starts_with("scattering"); }
};

// "scattering": a linear layer on features that are not learned (Tramer and Boneh 2021).
// "scattering-cnn": two convolutions on them. "cnn": convolutions with tanh (Papernot et al. 2021).
// "resnet18", "resnet20", "resnet50" and "wrn-16-4": residual networks with group normalisation,
// the last with standardised weights and pictures (De et al. 2022). "vit-tiny": a transformer over
// patches of 4 x 4 pixels.
std::vector<std::string> network_names();

// What a published model's batch norms become (nn::StoredNorms).
std::vector<std::string> stored_norm_names();

// Throws std::invalid_argument for a side that the network cannot have, and for numbers out of
// range.
void check_network(const ImageNetworkOptions& options);
// Logits [n, classes] of NetworkInputs.
std::unique_ptr<nn::Module> make_network(const ImageNetworkOptions& options);

// The layer of `standardize`, and the ranges of its channels. The network is make_network()'s.
StandardizeOptions standardize_options(nn::Module& network, const ImageNetworkOptions& options);

// The network's inputs for pictures [n, c, size, size]: themselves, or their features, for
// scattering, or the values of a published model's frozen trunk: see StartedNetwork.
class NetworkInputs {
 public:
  explicit NetworkInputs(const ImageNetworkOptions& options);
  Tensor operator()(const Tensor& pictures) const;
  // Identifies all that the inputs depend on beside the pictures.
  std::string identity() const;

 private:
  std::string scattering_;  // the identity of features_
  std::optional<Features> features_;
  std::unique_ptr<StartedNetwork> trunk_;  // null: not of a published model's trunk
};

}  // namespace sotto::images
