#include "nn/models/architecture.h"

#include <nlohmann/json.hpp>

#include "nn/models/names.h"

namespace sotto::nn {

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all{
      gpt2_architecture(),         llama_architecture(),    bert_architecture(),
      distilbert_architecture(),   roberta_architecture(),  vit_architecture(),
      deit_architecture(),         timm_vit_architecture(), resnet_architecture(),
      efficientnet_architecture(),
  };
  return all;
}

const Architecture* architecture_named(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    for (const Architecture& one : architectures()) {
      for (const std::string& pattern : one.names) {
        if (fits_pattern(pattern, name)) return &one;
      }
    }
  }
  return nullptr;
}

}  // namespace sotto::nn
