#include "samples/text/text_model.h"

#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io/safetensors.h"
#include "nn/state.h"
#include "samples/cli/model_file.h"
#include "samples/text/text_task.h"

namespace sotto::text {

namespace {

constexpr std::int64_t max_context = 1 << 16;

TextUnit unit_of(const std::string& name) {
  if (name == "line") return TextUnit::line;
  return name == "paragraph" ? TextUnit::paragraph : TextUnit::file;
}

}  // namespace

TextVocabulary TextModel::vocabulary() const {
  try {
    if (alphabet == "bytes") return TextVocabulary::bytes();
    return TextVocabulary::characters(alphabet, other_characters);
  } catch (const std::invalid_argument& error) {
    fail(fmt::format("--alphabet: {}", error.what()));
  }
}

TextOptions TextModel::text_options() const {
  check(context >= 2 && context <= max_context, "--context: {} is not from 2 to {}", context,
        max_context);
  return {.unit = unit_of(unit),
          .context = context,
          .long_units = long_units == "split" ? LongUnit::split : LongUnit::cut,
          .vocabulary = vocabulary()};
}

std::unique_ptr<Network> TextModel::make_network() const {
  const std::int64_t symbols = vocabulary().size();
  return text::make_network(network, {.symbols = symbols,
                                      .context = context,
                                      .outputs = generates() ? symbols : std::ssize(classes),
                                      .each_position = generates()});
}

TextFiles read_text(const TextModel& model, const std::string& path) {
  const TextOptions options = model.text_options();
  if (model.generates() && !std::filesystem::is_directory(path))
    return read_text_files({&path, 1}, options);
  return read_text_folder(path, options, model.classes);
}

Dataset prepared(const TextModel& model, const Dataset& rows) {
  if (!model.generates()) return rows;
  const std::int64_t n = rows.size(), context = model.context;
  std::vector<std::int64_t> lengths = rows.field("lengths").to_vector<std::int64_t>();
  std::vector<std::int64_t> targets = rows.inputs.to_vector<std::int64_t>();
  std::vector<std::int64_t> inputs(targets.size(), TextVocabulary::end);
  for (std::int64_t row = 0; row < n; ++row) {
    std::int64_t& length = lengths[static_cast<std::size_t>(row)];
    const auto begin = targets.begin() + row * context;
    std::copy(begin, begin + std::min(length, context - 1), inputs.begin() + row * context + 1);
    length = std::min(length + 1, context);
    std::fill(begin + length, begin + context, ignored);
  }
  return {.inputs = Tensor::from(inputs, {n, context}),
          .targets = Tensor::from(targets, {n, context}),
          .fields = {{"lengths", Tensor::from(lengths, {n})}},
          .units = rows.units};
}

nlohmann::json to_json(const TextModel& model) {
  const TextNetworkOptions& network = model.network;
  return {{"task", model.task},
          {"model", network.model},
          {"embedding", network.embedding},
          {"hidden", network.hidden},
          {"layers", network.layers},
          {"heads", network.heads},
          {"bidirectional", network.bidirectional},
          {"alphabet", model.alphabet},
          {"other characters", model.other_characters},
          {"unit", model.unit},
          {"long units", model.long_units},
          {"context", model.context},
          {"classes", model.classes}};
}

TextModel text_model_from_json(const nlohmann::json& object) {
  return {.task = object.at("task"),
          .network = {.model = object.at("model"),
                      .embedding = object.at("embedding"),
                      .hidden = object.at("hidden"),
                      .layers = object.at("layers"),
                      .heads = object.at("heads"),
                      .bidirectional = object.at("bidirectional")},
          .alphabet = object.at("alphabet"),
          .other_characters = object.at("other characters"),
          .unit = object.at("unit"),
          .long_units = object.at("long units"),
          .context = object.at("context"),
          .classes = object.at("classes")};
}

SavedTextModel load_model(const std::string& path) {
  return samples::load_model_file(path, model_key, [&](const nlohmann::json& json) {
    SavedTextModel saved;
    saved.model = text_model_from_json(json);
    saved.network = saved.model.make_network();
    nn::load_module(path, *saved.network);
    return saved;
  });
}

}  // namespace sotto::text
