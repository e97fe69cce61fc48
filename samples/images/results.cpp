#include "samples/images/results.h"

#include <iterator>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "nn/predict.h"
#include "nn/state.h"
#include "samples/cli/model_file.h"

namespace sotto::images {

std::string model_text(const ImageNetworkOptions& options,
                       const std::vector<std::string>& classes) {
  const nlohmann::json model = {{"model", options.model},
                                {"size", options.shape.size},
                                {"channels", options.shape.channels},
                                {"groups", options.features.groups},
                                {"mirror", options.features.mirror},
                                {"classes", classes}};
  return model.dump();
}

SavedImageModel load_model(const std::string& path) {
  return samples::load_model_file(path, model_key, [&](const nlohmann::json& model) {
    const auto classes = model.at("classes").get<std::vector<std::string>>();
    const ImageNetworkOptions options{
        .model = model.at("model").get<std::string>(),
        .shape = {.size = model.at("size").get<std::int64_t>(),
                  .channels = model.at("channels").get<std::int64_t>()},
        .classes = std::ssize(classes),
        .features = {.groups = model.at("groups").get<std::int64_t>(),
                     .mirror = model.at("mirror").get<bool>()}};
    SavedImageModel saved{options, classes, make_network(options), NetworkInputs(options)};
    nn::load_module(path, *saved.network);
    return saved;
  });
}

Tensor logits_of(const SavedImageModel& model, const Tensor& pictures) {
  return nn::predict(*model.network, model.inputs(pictures));
}

}  // namespace sotto::images
