// LoRA around the layers of a model, chosen by their paths.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/layers/lora.h"

namespace sotto::nn {

// Chooses the options of a layer's LoRA; nullopt leaves the layer as it is.
using ChooseLora =
    std::function<std::optional<LoraOptions>(const std::string& path, const Module& layer)>;
// Puts LoRA around the layers that are chosen, among those that take it and have none, and returns
// their paths. Throws std::invalid_argument for a chosen layer that its owner holds by value.
std::vector<std::string> add_lora(Module& model, const ChooseLora& choose);
// The paths of the layers that add_lora() may adapt.
std::vector<std::string> layers_for_lora(Module& model);
// The layers that have LoRA, and their paths.
std::vector<std::pair<std::string, LoraLayer*>> lora_layers(Module& model);
// Adds the products to the weights and puts the plain layers back, with their names. Throws
// std::invalid_argument for a layer that its owner holds by value.
void merge_lora(Module& model);
// The model's parameters as they would be after merge_lora(), which is not done: quantised weights
// are widened.
std::map<std::string, Tensor> merged_tensors(Module& model);

}  // namespace sotto::nn
