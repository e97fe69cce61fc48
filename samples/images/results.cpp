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
  nlohmann::json model = {{"model", options.model},
                          {"size", options.shape.size},
                          {"channels", options.shape.channels},
                          {"groups", options.features.groups},
                          {"mirror", options.features.mirror},
                          {"standardize", options.standardize},
                          {"classes", classes}};
  if (options.is_pretrained())
    model["start"] = {{"of", samples::to_json(options.start)},
                      {"input size", options.input_size},
                      {"norms", options.norms},
                      {"layers", options.layers}};
  return model.dump();
}

SavedImageModel load_model(const std::string& path) {
  return samples::load_model_file(path, model_key, [&](const nlohmann::json& model) {
    const auto classes = model.at("classes").get<std::vector<std::string>>();
    ImageNetworkOptions options{.model = model.at("model").get<std::string>(),
                                .shape = {.size = model.at("size").get<std::int64_t>(),
                                          .channels = model.at("channels").get<std::int64_t>()},
                                .classes = std::ssize(classes),
                                .features = {.groups = model.at("groups").get<std::int64_t>(),
                                             .mirror = model.at("mirror").get<bool>()},
                                .standardize = model.value("standardize", false)};
    if (model.contains("start")) {
      options.start = samples::start_from_json(model.at("start").at("of"));
      options.input_size = model.at("start").at("input size");
      options.norms = model.at("start").at("norms");
      options.layers = model.at("start").value("layers", "");
    }
    SavedImageModel saved{options, classes, make_network(options), NetworkInputs(options)};
    if (options.is_pretrained()) {
      samples::set_trained(*saved.network, load_safetensors(path).tensors, path);
    } else {
      nn::load_module(path, *saved.network);
    }
    return saved;
  });
}

void export_model(const samples::ExportCommand& command) {
  SavedImageModel saved = load_model(command.model);
  auto* const started = dynamic_cast<StartedNetwork*>(saved.network.get());
  check(started != nullptr, "--model: {} was not tuned from a published model", command.model);
  check(started->has_own_head(),
        "--model: {} has a classifier on layers, which other software does not compute",
        command.model);
  samples::export_pretrained(started->pretrained(), command);
  if (!command.adapter) nn::save_image_input(started->input(), command.out);
}

Tensor logits_of(const SavedImageModel& model, const Tensor& pictures) {
  return nn::predict(*model.network, model.inputs(pictures));
}

}  // namespace sotto::images
