#include "nn/models/pretrained.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/io/atomic_file.h"
#include "core/io/strict_json.h"
#include "core/io/utf8.h"
#include "core/io/weights_file.h"
#include "core/join.h"
#include "nn/layers/quantized_layers.h"
#include "nn/models/architecture.h"
#include "nn/models/config.h"
#include "nn/models/frozen_norm.h"
#include "nn/models/load_weights.h"
#include "nn/without_init.h"

namespace sotto::nn {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t max_config_bytes = 16 << 20;
constexpr JsonLimits config_limits{.depth = 64, .max_entries = 1 << 20};

// The config.json in the folder of the weights; an empty object where there is none.
nlohmann::json read_config(const std::string& path) {
  const fs::path folder = fs::is_directory(path) ? fs::path(path) : fs::path(path).parent_path();
  const std::string file = (folder / "config.json").string();
  if (!fs::exists(file)) return nlohmann::json::object();
  return parse_json_object(read_file(file, max_config_bytes), file, config_limits);
}

// For messages: a name of each architecture that is known.
std::string known_names() {
  std::vector<std::string> names;
  for (const Architecture& one : architectures()) names.push_back(one.names[0]);
  return join(names, ", ");
}

const Architecture& architecture_of(const nlohmann::json& config, const WeightsFile& file,
                                    const PretrainedOptions& options) {
  const ConfigFields fields(config);
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (!name.empty()) names.push_back(name);
  };
  add(options.architecture);
  add(fields.text("model_type", ""));
  add(fields.text("architecture", ""));
  if (fields.has("architectures")) {
    for (const nlohmann::json& name : config["architectures"]) add(name.is_string() ? name : "");
  }
  const nlohmann::json& metadata = file.metadata();
  if (metadata.contains("general.architecture") && metadata["general.architecture"].is_string())
    add(metadata["general.architecture"]);
  check(!names.empty(),
        "{}: there is no config.json, and no architecture is named in the options: {}", file.path(),
        known_names());
  const Architecture* found =
      architecture_named(options.architecture.empty() ? names : std::vector{names[0]});
  check(found != nullptr, "{}: the architecture {} is not known; known are {}", file.path(),
        excerpt(names[0]), known_names());
  return *found;
}

// The layout whose known tensor is there.
std::pair<NamesTable, std::string> layout_of(const Architecture& architecture,
                                             const WeightsFile& file) {
  std::string known;
  for (const std::string& text : architecture.tables) {
    NamesTable table(text);
    const auto prefix =
        table.prefix_in([&](const std::string& name) { return file.tensors().contains(name); });
    if (prefix) return {std::move(table), *prefix};
    known += (known.empty() ? "" : " or ") + table.known();
  }
  fail(fmt::format("weights: {}: there is no tensor {}, which every {} has", file.path(), known,
                   architecture.names[0]));
}

bool same_bytes(const WeightsFile& file, const std::string& one, const std::string& other) {
  const StoredTensor &a = file.tensors().at(one), &b = file.tensors().at(other);
  if (a.shape != b.shape || a.type != b.type) return false;
  const auto elements = [&](const std::string& name) {
    const std::optional<BlockMatrix> blocks = file.blocks(name);
    return blocks ? blocks->bytes : file.tensor(name);
  };
  const Tensor x = elements(one), y = elements(other);
  return std::memcmp(x.view().data, y.view().data, x.bytes()) == 0;
}

// True if a file has two tensors that are tied, and they differ.
bool untied(const NamesTable& table, const std::string& prefix, const WeightsFile& file) {
  for (const NamesLine& line : table.lines()) {
    if (line.tied.empty()) continue;
    const auto other = table.of_parameter(line.tied);
    const std::string own = (line.outside ? "" : prefix) + line.file,
                      same = prefix + (other ? other->file : "");
    if (!file.tensors().contains(own) || !file.tensors().contains(same)) continue;
    if (!same_bytes(file, own, same)) return true;
  }
  return false;
}

// Leaves the first blocks, in the field that the config has for their number.
void shorten(nlohmann::json& config, const PretrainedOptions& options) {
  if (options.blocks == 0) return;
  for (const char* field : {"num_hidden_layers", "n_layer", "n_layers"}) {
    if (!config.contains(field)) continue;
    const std::int64_t all = ConfigFields(config).size(field);
    check(options.blocks > 0 && options.blocks <= all, "pretrained: the first {} blocks of {}",
          options.blocks, all);
    config[field] = options.blocks;
    return;
  }
  fail("pretrained: blocks: the config has no number of blocks");
}

// The config with the rates of dropout that are asked for, in all architectures' fields.
nlohmann::json with_dropout(nlohmann::json config, const PretrainedOptions& options) {
  nlohmann::json arguments = ConfigFields(config).object("model_args");  // timm's
  if (options.drop_path) arguments["drop_path_rate"] = *options.drop_path;
  if (options.dropout) {
    for (const char* field : {"drop_rate", "pos_drop_rate", "proj_drop_rate", "attn_drop_rate"})
      arguments[field] = *options.dropout;
  }
  config["model_args"] = arguments;
  if (!options.dropout) return config;
  for (const char* field :
       {"attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout", "hidden_dropout_prob",
        "attention_probs_dropout_prob", "classifier_dropout", "dropout", "seq_classif_dropout"})
    config[field] = *options.dropout;
  return config;
}

// The config with what the files and the options say beside it.
void complete(nlohmann::json& config, const Architecture& architecture, const WeightsFile& file,
              const PretrainedOptions& options) {
  if (architecture.config_of && (config.empty() || architecture.beneath_config)) {
    const nlohmann::json read = architecture.config_of(file, options);
    for (const auto& [field, value] : read.items()) {
      if (!config.contains(field)) config[field] = value;
    }
  }
  shorten(config, options);
  if (!options.architecture.empty()) config["architectures"] = {options.architecture};
  if (options.classes == 0) return;
  check(options.classes > 0, "pretrained: {} classes", options.classes);
  config["num_labels"] = options.classes;
}

std::int64_t elements_of(const WeightsFile& file) {
  std::int64_t all = 0;
  for (const auto& [name, tensor] : file.tensors()) all += tensor.shape.numel();
  return all;
}

// More than a model of this file has, a new head included: a config that says otherwise is refused
// before memory is taken.
std::int64_t max_elements(const WeightsFile& file, const PretrainedOptions& options) {
  constexpr std::int64_t slack = 1 << 20, max_width = 1 << 16;
  return 2 * elements_of(file) + slack + options.classes * max_width;
}

// Writes the number of classes wherever timm has another, and leaves out the names of those.
void set_timm_classes(nlohmann::json& config, std::int64_t classes) {
  if (!config.contains("num_classes")) return;
  const bool others = config["num_classes"] != classes;
  const auto set = [&](nlohmann::json& part) {
    if (part.contains("num_classes")) part["num_classes"] = classes;
    for (const char* names : {"label_names", "label_descriptions"}) {
      if (others) part.erase(names);
    }
  };
  set(config);
  for (const char* part : {"model_args", "pretrained_cfg"}) {
    if (config.contains(part) && config[part].is_object()) set(config[part]);
  }
}

// Fits a model of images and its config to the size that is asked for.
void resize_images(PretrainedModel& model, nlohmann::json& config, const Architecture& architecture,
                   const PretrainedOptions& options) {
  if (options.image_size == 0) return;
  constexpr std::int64_t largest = 1 << 14;
  check(options.image_size > 0 && options.image_size <= largest,
        "pretrained: image_size {} is not from 0 to {}", options.image_size, largest);
  auto* const images = dynamic_cast<ImageModel*>(&model);
  check(images != nullptr, "pretrained: image_size {}: {} is no model of images",
        options.image_size, architecture.names[0]);
  images->resize_images({options.image_size, options.image_size});
  if (architecture.set_image_size) architecture.set_image_size(config, options.image_size);
}

// config.json as it is saved: labels in place of their number.
std::string saved_config(nlohmann::json config, const PretrainedOptions& options) {
  if (options.classes > 0) {
    config.erase("num_labels");
    set_timm_classes(config, options.classes);
    nlohmann::json names = nlohmann::json::object(), ids = nlohmann::json::object();
    for (std::int64_t k = 0; k < options.classes; ++k) {
      names[std::to_string(k)] = fmt::format("LABEL_{}", k);
      ids[fmt::format("LABEL_{}", k)] = k;
    }
    if (config.value("id2label", nlohmann::json::object()).size() != names.size()) {
      config["id2label"] = names;
      config["label2id"] = ids;
    }
  }
  // The package would round the weights to the type that it finds here.
  for (const char* field : {"dtype", "torch_dtype"}) {
    if (config.contains(field)) config[field] = "float32";
  }
  return config.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<StoredName> names_of(Module& model, const NamesTable& table,
                                 const std::string& prefix) {
  std::vector<StoredName> names;
  std::vector<std::string> seen;
  const auto add = [&](const std::string& parameter) {
    const auto line = table.of_parameter(parameter);
    if (!line) return;
    const std::string file = (line->outside ? "" : prefix) + line->file;
    if (std::find(seen.begin(), seen.end(), file) != seen.end()) return;
    seen.push_back(file);
    names.push_back({file, line->parameters, line->transposed});
  };
  for (const auto& [name, parameter] : model.named_parameters()) add(name);
  for (const auto& [name, value] : stored_values(model)) add(name);
  for (const NamedBlocks& weight : named_blocks(model)) add(weight.name);
  return names;
}

}  // namespace

TokenModel& Pretrained::tokens() const {
  auto* model_of_tokens = dynamic_cast<TokenModel*>(model.get());
  check(model_of_tokens != nullptr, "pretrained: {} is no model of tokens", report.architecture);
  return *model_of_tokens;
}

Pretrained load_pretrained(const std::string& path, const PretrainedOptions& options) {
  const WeightsFile file = open_weights(path);
  nlohmann::json config = read_config(path);
  const Architecture& architecture = architecture_of(config, file, options);
  complete(config, architecture, file, options);
  Pretrained result;
  result.report.architecture = architecture.names[0];
  result.tables = architecture.tables;
  const auto [table, prefix] = layout_of(architecture, file);
  if (untied(table, prefix, file)) config["tie_word_embeddings"] = false;
  {
    const WithoutInit without_init(max_elements(file, options), "config: " + path);
    result.model = architecture.make(with_dropout(config, options), options);
  }
  load_weights({file, table, prefix, config, options}, *result.model, result.report);
  resize_images(*result.model, config, architecture, options);
  // GGUF is read only: its models are saved as their first publisher does.
  const NamesTable published(architecture.tables[0]);
  const bool gguf = file.metadata().contains("general.architecture");
  const NamesTable& saved = gguf ? published : table;
  const bool whole = gguf || !result.report.drawn_anew.empty();
  convert_batch_norms(*result.model, options.batch_norm, options.norm_groups);
  if (options.batch_norm == StoredNorms::group && config.contains("group_norm"))
    config["group_norm"] = true;
  const UnfoldedBatchNorms unfolded(*result.model);
  result.names = names_of(*result.model, saved, whole ? saved.prefix() : prefix);
  result.config = saved_config(config, options);
  return result;
}

}  // namespace sotto::nn
