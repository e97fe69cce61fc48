#include "nn/models/lora_targets.h"

#include "kernels/quantized/quantized.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/state.h"

namespace sotto::nn {

namespace {

struct Place {
  std::string path;
  Module* module;
  std::unique_ptr<Module>* owner;  // null if the module is held by value
};

// All modules below `module`, an adapted layer without its base.
void collect(Module& module, const std::string& path, std::vector<Place>& places) {
  const auto add = [&](const std::string& name, Module& child, std::unique_ptr<Module>* owner) {
    places.push_back({path + name, &child, owner});
    if (!dynamic_cast<LoraLayer*>(&child)) collect(child, path + name + ".", places);
  };
  module.visit(Visitor(
      [](const std::string&, Parameter&) {},
      [&](const std::string& name, Module& child) { add(name, child, nullptr); },
      [&](const std::string& name, std::unique_ptr<Module>& child) { add(name, *child, &child); }));
}

std::vector<Place> module_places(Module& model) {
  std::vector<Place> places;
  collect(model, "", places);
  return places;
}

void check_owned(const Place& place) {
  check(place.owner,
        "Lora: layer {} cannot be replaced: its owner holds it by value, not in a "
        "std::unique_ptr<Module>",
        place.path);
}

}  // namespace

std::vector<std::string> add_lora(Module& model, const ChooseLora& choose) {
  std::vector<std::pair<Place, LoraOptions>> chosen;
  for (const Place& place : module_places(model)) {
    if (!lora_sizes(*place.module)) continue;
    const auto options = choose(place.path, *place.module);
    if (!options) continue;
    check_owned(place);
    chosen.emplace_back(place, *options);
  }
  std::vector<std::string> paths;
  for (const auto& [place, options] : chosen) {
    *place.owner = with_lora(*place.module, options);
    paths.push_back(place.path);
  }
  return paths;
}

std::vector<std::string> layers_for_lora(Module& model) {
  std::vector<std::string> paths;
  for (const Place& place : module_places(model)) {
    if (lora_sizes(*place.module) && place.owner) paths.push_back(place.path);
  }
  return paths;
}

std::vector<std::pair<std::string, LoraLayer*>> lora_layers(Module& model) {
  std::vector<std::pair<std::string, LoraLayer*>> layers;
  for (const Place& place : module_places(model)) {
    if (auto* layer = dynamic_cast<LoraLayer*>(place.module))
      layers.emplace_back(place.path, layer);
  }
  return layers;
}

void merge_lora(Module& model) {
  std::vector<Place> adapted;
  for (const Place& place : module_places(model)) {
    if (!dynamic_cast<LoraLayer*>(place.module)) continue;
    check_owned(place);
    adapted.push_back(place);
  }
  for (const Place& place : adapted)
    *place.owner = dynamic_cast<LoraLayer&>(*place.module).take_merged();
}

namespace {

// The weight of a layer with its product added to it.
Tensor merged_weight(LoraLayer& layer) {
  if (const auto* base = dynamic_cast<const QuantizedLinear*>(&layer.base_layer())) {
    const Tensor product = gemm(layer.lora_b->value, layer.lora_a->value);
    return add(dequantize(base->blocks()), scale(product, layer.options().scale()));
  }
  const bool merged = layer.merged();
  if (!merged) layer.merge();
  const Tensor weight = parameter_tensors(layer.base_layer()).at("weight");
  if (!merged) layer.unmerge();
  return weight;
}

}  // namespace

std::map<std::string, Tensor> merged_tensors(Module& model) {
  std::map<std::string, Tensor> all;
  for (const auto& [name, parameter] : model.named_parameters()) all[name] = parameter->value;
  for (const NamedBlocks& weight : named_blocks(model)) {
    if (!weight.name.ends_with(".base.weight")) all[weight.name] = dequantize(*weight.blocks);
  }
  for (const auto& [path, layer] : lora_layers(model)) {
    for (const char* factor : {".lora_a", ".lora_b", ".base.weight"}) all.erase(path + factor);
    all[path + ".weight"] = merged_weight(*layer);
    const auto bias = all.extract(path + ".base.bias");
    if (!bias.empty()) all[path + ".bias"] = bias.mapped();
  }
  return all;
}

}  // namespace sotto::nn
