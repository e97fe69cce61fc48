#include "samples/images/results.h"

#include <algorithm>
#include <iterator>

#include <nlohmann/json.hpp>

#include "autograd/ops/reductions.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/io/safetensors.h"
#include "nn/functional.h"
#include "nn/metrics.h"
#include "nn/predict.h"
#include "nn/state.h"
#include "samples/report/results.h"
#include "samples/training/model_file.h"

namespace sotto::images {

std::string model_text(const NetworkOptions& options, const std::vector<std::string>& classes) {
  const nlohmann::json model = {{"model", options.model},
                                {"size", options.shape.size},
                                {"channels", options.shape.channels},
                                {"groups", options.features.groups},
                                {"mirror", options.features.mirror},
                                {"classes", classes}};
  return model.dump();
}

SavedModel load_model(const std::string& path) {
  return samples::load_model_file(path, model_key, [&](const nlohmann::json& model) {
    const auto classes = model.at("classes").get<std::vector<std::string>>();
    const NetworkOptions options{.model = model.at("model").get<std::string>(),
                                 .shape = {.size = model.at("size").get<std::int64_t>(),
                                           .channels = model.at("channels").get<std::int64_t>()},
                                 .classes = std::ssize(classes),
                                 .features = {.groups = model.at("groups").get<std::int64_t>(),
                                              .mirror = model.at("mirror").get<bool>()}};
    SavedModel saved{options, classes, make_network(options), NetworkInputs(options)};
    nn::load_module(path, *saved.network);
    return saved;
  });
}

Tensor logits_of(const SavedModel& model, const Tensor& pictures) {
  return nn::predict(*model.network, model.inputs(pictures));
}

std::string prediction_header(const std::vector<std::string>& classes) {
  std::string line = "file,class";
  for (const std::string& name : classes) line += "," + samples::csv_field("p(" + name + ")");
  return line + "\n";
}

std::string prediction_lines(std::span<const std::string> files, const Tensor& logits,
                             const std::vector<std::string>& classes) {
  Tape tape({.training = false});
  const std::vector<float> all = softmax(tape.input(logits), 1).value().to_vector<float>();
  std::string text;
  for (std::size_t k = 0; k < files.size(); ++k) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(k * classes.size());
    const auto end = begin + std::ssize(classes);
    const auto best = static_cast<std::size_t>(std::max_element(begin, end) - begin);
    text += samples::csv_field(files[k]) + "," + samples::csv_field(classes[best]);
    for (auto p = begin; p != end; ++p) text += fmt::format(",{:.6f}", *p);
    text += '\n';
  }
  return text;
}

}  // namespace sotto::images
