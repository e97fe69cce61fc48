// adapter_config.json, as PEFT reads and writes it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nn/layers/lora.h"

namespace sotto::nn {

// Patterns of paths, the first that fits counts, and the values that they set.
template <class Number>
using Patterns = std::vector<std::pair<std::string, Number>>;

struct AdapterConfig {
  LoraOptions lora = {};
  Patterns<std::int64_t> ranks = {};  // rank_pattern
  Patterns<double> alphas = {};       // alpha_pattern
  // Written, and not read: the keys of the file decide.
  std::vector<std::string> targets = {};  // published paths of the adapted modules
  std::vector<std::string> saved = {};    // of the modules stored whole
  bool transposed = false;                // fan_in_fan_out
  std::string bias = "none";              // or "all"
  std::string task_type = {};             // empty: null
  std::string base_model = {};            // empty: null

  // The options of the LoRA beside the module with this published path.
  LoraOptions of(const std::string& path) const;
};

// Throws std::invalid_argument, with `where` and the field, for text that is no such config, for
// another method than LoRA, and for fields that change what the factors mean.
AdapterConfig parse_adapter_config(const std::string& text, const std::string& where);
std::string to_json(const AdapterConfig& config);

}  // namespace sotto::nn
