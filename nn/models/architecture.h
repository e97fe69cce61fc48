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

// A module with tensors that are no parameters and never trained, but stand in files: the
// statistics of a batch norm. load_pretrained() fills them in, save_pretrained() writes them.
class HoldsStatistics {
 public:
  virtual ~HoldsStatistics() = default;
  // Calls f for each tensor with its name in the module: "running_mean".
  virtual void visit_statistics(
      const std::function<void(const std::string& name, Tensor& value)>& f) = 0;
};

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
