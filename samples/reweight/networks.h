// The classifiers of the sample reweight.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "samples/images/image_network.h"

namespace sotto::reweight {

// "perceptron": one hidden layer of 128 units with tanh. Otherwise those of the sample images.
std::vector<std::string> classifier_names();

// Throws std::invalid_argument for pictures that the network cannot have.
void check_classifier(const images::ImageNetworkOptions& options);
// Logits [n, classes] of pictures, or for scattering of their features.
std::unique_ptr<nn::Module> make_classifier(const images::ImageNetworkOptions& options);

}  // namespace sotto::reweight
