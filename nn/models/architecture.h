// The architectures that load_pretrained() knows: each model registers itself by a function here.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/tensor.h"
#include "nn/models/pretrained.h"
#include "nn/models/statistics.h"

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
};

// All of them; a model adds itself to the list in architectures.cpp.
const std::vector<Architecture>& architectures();

Architecture gpt2_architecture();
Architecture llama_architecture();

// Linear layers, embeddings and convolutions are made without drawing initial values, and take no
// memory, while one of these lives on the thread: their parameters have one element, repeated.
// `elements`: the most that they may have together, beyond which std::invalid_argument is thrown.
class WithoutInit {
 public:
  WithoutInit(std::int64_t elements, std::string source);
  ~WithoutInit();
  WithoutInit(const WithoutInit&) = delete;
  WithoutInit& operator=(const WithoutInit&) = delete;
  // A tensor of this shape without values while one lives on the thread, else undefined.
  static Tensor of(const Shape& shape);

 private:
  std::int64_t left_;
  std::string source_;
  WithoutInit* before_;
};

}  // namespace sotto::nn
