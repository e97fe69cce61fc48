// The architectures that load_pretrained() knows: each model registers itself by a function here.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nn/models/pretrained.h"

namespace sotto {
class WeightsFile;
}

namespace sotto::nn {

struct Architecture {
  // Patterns ("**" is any text) of PretrainedOptions::architecture, of the config's `model_type`,
  // of timm's `architecture`, and of an entry of `architectures`, sought in this order.
  std::vector<std::string> names;
  // Tables of names (names.h), one for each layout; that whose known tensor the file has is taken.
  std::vector<std::string> tables;
  // The model of a config (config.h reads it), with initial values of its own. `architectures` in
  // the config is PretrainedOptions::architecture where that is given, and `num_labels` is
  // PretrainedOptions::classes.
  std::function<std::unique_ptr<PretrainedModel>(const nlohmann::json& config,
                                                 const PretrainedOptions& options)>
      make;
  // The config of files that come without one, by their shapes and metadata. Optional.
  std::function<nlohmann::json(const WeightsFile& file, const PretrainedOptions& options)>
      config_of = {};
  // Writes the height and width of images into a config. Optional: for models that need it.
  std::function<void(nlohmann::json& config, std::int64_t size)> set_image_size = {};
  // config_of() also gives the fields that a config.json lacks; else it is for files without one.
  bool beneath_config = false;
};

// All of them; a model adds itself to the list in architectures.cpp.
const std::vector<Architecture>& architectures();
// The first with a name that fits one of these, or null.
const Architecture* architecture_named(const std::vector<std::string>& names);

Architecture gpt2_architecture();
Architecture llama_architecture();
Architecture bert_architecture();
Architecture distilbert_architecture();
Architecture roberta_architecture();
Architecture vit_architecture();       // as transformers has it
Architecture deit_architecture();      // the same, with a teacher's head or without
Architecture timm_vit_architecture();  // timm's ViT and DeiT: "vit_tiny_patch16_224"
Architecture resnet_architecture();
Architecture efficientnet_architecture();

}  // namespace sotto::nn
