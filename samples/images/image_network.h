// Networks for pictures.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <sotto/nn/module.h>
#include "samples/images/picture_data.h"

namespace sotto::images {

struct NetworkOptions {
  std::string model = "scattering";  // of network_names()
  PictureShape shape = {};           // of the pictures
  std::int64_t classes = 10;
  // For scattering: the groups of channels that are normalised together, and if a picture and its
  // mirror image are the same to the model.
  std::int64_t groups = 27;
  bool mirror = false;
};

// "scattering": a linear layer on features that are not learned (Tramer and Boneh 2021). "cnn":
// convolutions with tanh (Papernot et al. 2021). "resnet18" and "wrn-16-4": residual networks with
// group normalisation, the second with standardised weights (De et al. 2022). "vit-tiny": a
// transformer over patches of 4 x 4 pixels.
std::vector<std::string> network_names();

// Throws std::invalid_argument for a side that the network cannot have, and for numbers out of
// range.
void check_network(const NetworkOptions& options);
// Logits [n, classes] of network_inputs().
std::unique_ptr<nn::Module> make_network(const NetworkOptions& options);

// The network's inputs for pictures [n, c, size, size]: themselves, or for scattering their
// features, f16 [n, features]: the scattering transform, normalised to mean 0 and variance 1 over
// each group of channels of a picture (Wu and He 2018). With `mirror` the transforms of a picture
// and its mirror image are averaged first; the average has a mirror symmetry itself, and its left
// half is kept. The features of a picture depend on no other picture.
Tensor network_inputs(const Tensor& pictures, const NetworkOptions& options);

}  // namespace sotto::images
