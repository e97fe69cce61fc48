#include "samples/reweight/networks.h"

#include "core/error.h"
#include "nn/layers.h"

namespace sotto::reweight {

namespace {

constexpr const char* perceptron = "perceptron";
constexpr std::int64_t hidden = 128;

}  // namespace

std::vector<std::string> classifier_names() {
  std::vector<std::string> names{perceptron};
  for (const std::string& name : images::network_names()) names.push_back(name);
  return names;
}

void check_classifier(const images::ImageNetworkOptions& options) {
  if (options.model == perceptron) {
    check(!options.features.mirror, "--mirror: needs --model scattering");
    return;
  }
  images::check_network(options);
}

std::unique_ptr<nn::Module> make_classifier(const images::ImageNetworkOptions& options) {
  if (options.model != perceptron) return images::make_network(options);
  const auto& [size, channels] = options.shape;
  return std::make_unique<nn::Sequential>(
      nn::Sequential{nn::Flatten(), nn::Linear(channels * size * size, hidden), nn::Tanh(),
                     nn::Linear(hidden, options.classes)});
}

}  // namespace sotto::reweight
