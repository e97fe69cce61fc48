// Writes adapters in PEFT's files.
#include <filesystem>
#include <set>

#include "core/io/atomic_file.h"
#include "core/io/safetensors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/models/adapter.h"
#include "nn/models/adapter_config.h"
#include "nn/models/adapter_names.h"
#include "nn/models/path_pattern.h"

namespace sotto::nn {

namespace {

const std::string key_start = "base_model.model.";

// The sizes of a kernel's axes, behind [out, in]; none for a matrix.
Shape kernel_of(Module& base) {
  const NamedParameters named = base.named_parameters();
  Shape kernel;
  if (named.empty() || named[0].first != "weight") return kernel;
  const Shape& weight = named[0].second->value.shape();
  for (int axis = 2; axis < weight.rank(); ++axis) kernel.push_back(weight[axis]);
  return kernel;
}

class AdapterWriter {
 public:
  AdapterWriter(const PublishedModel& model, const AdapterOptions& options)
      : model_(model), names_(model.tables) {
    config_.task_type = options.task_type;
    config_.base_model = options.base_model;
  }

  void add_layers() {
    const auto layers = lora_layers(model_.model);
    check(!layers.empty(), "save_adapter: the model has no LoRA");
    config_.lora = layers[0].second->options();
    for (const auto& [path, layer] : layers) {
      check(!layer->merged(), "save_adapter: {} is merged", path);
      add_factors(path, *layer);
      add_options(config_.targets.back(), layer->options());
      taken_.insert({layer->lora_a.get(), layer->lora_b.get()});
    }
  }

  // The trained parameters that are no factors: biases alone, or their modules whole.
  void add_others() {
    for (const auto& [path, parameter] : model_.model.named_parameters()) {
      if (!parameter->trainable || taken_.contains(parameter)) continue;
      const std::string part = part_of(path);
      part.empty() && path.ends_with("bias") ? add_bias(path, *parameter)
                                             : add_module(part.empty() ? owner_of(path) : part);
    }
  }

  void write(const std::string& folder) const {
    std::filesystem::create_directories(folder);
    const std::filesystem::path in = folder;
    const std::string config = in / "adapter_config.json";
    check_can_write(config);
    save_safetensors(in / "adapter_model.safetensors",
                     {.tensors = tensors_, .metadata = {{"format", "pt"}}});
    write_file_atomically(config, [&](FileWriter& file) { file.write(to_json(config_)); });
  }

 private:
  static std::string owner_of(const std::string& path) {
    return path.substr(0, std::min(path.rfind('.'), path.size()));
  }
  // The part of the head that the path is in, else "".
  std::string part_of(const std::string& path) const {
    for (const std::string& part : model_.head) {
      if (path.starts_with(part + ".")) return part;
    }
    return "";
  }
  OtherName published(const std::string& path) const {
    const std::optional<OtherName> other = names_.published(path);
    check(other.has_value(), "save_adapter: {} has no published name of its own", path);
    return *other;
  }

  void add_factors(const std::string& path, LoraLayer& layer) {
    const OtherName weight = published(path + ".weight");
    const std::string module = owner_of(weight.name), key = key_start + module + ".lora_";
    config_.targets.push_back(module);
    config_.transposed = config_.transposed || weight.transposed;
    const Tensor &a = layer.lora_a->value, &b = layer.lora_b->value;
    if (dynamic_cast<const Embedding*>(&layer.base_layer())) {
      tensors_[key + "embedding_A"] = a;
      tensors_[key + "embedding_B"] = b;
      return;
    }
    Shape first{a.size(0)}, second = b.shape();
    const Shape kernel = kernel_of(layer.base_layer());
    check(kernel.empty() || a.size(1) % kernel.numel() == 0, "save_adapter: {}", path);
    first.push_back(kernel.empty() ? a.size(1) : a.size(1) / kernel.numel());
    for (int axis = 0; axis < kernel.rank(); ++axis) {
      first.push_back(kernel[axis]);
      second.push_back(1);
    }
    tensors_[key + "A.weight"] = reshape(a, first);
    tensors_[key + "B.weight"] = reshape(b, second);
  }

  // Layers that differ from the first stand in patterns.
  void add_options(const std::string& module, const LoraOptions& options) {
    if (options.rank != config_.lora.rank) config_.ranks.emplace_back(quoted(module), options.rank);
    const double root =
        options.scale() / LoraOptions{options.rank, 1, config_.lora.rank_stabilized}.scale();
    if (root != config_.lora.alpha) config_.alphas.emplace_back(quoted(module), root);
  }

  void add_bias(const std::string& path, const Parameter& parameter) {
    config_.bias = "all";
    const std::string base = ".base.bias";
    const bool adapted = path.ends_with(base);
    const std::string plain = adapted ? path.substr(0, path.size() - base.size()) + ".bias" : path;
    std::string name = published(plain).name;
    if (adapted) name = owner_of(name) + ".base_layer.bias";
    tensors_[key_start + name] = parameter.value;
  }

  void add_module(const std::string& module) {
    std::string saved;
    for (const auto& [path, parameter] : model_.model.named_parameters()) {
      if (!path.starts_with(module + ".")) continue;
      check(path.find(".lora_") == std::string::npos,
            "save_adapter: {} has LoRA and other parameters that are trained", module);
      const OtherName other = published(path);
      const std::string rest = path.substr(module.size());
      check(other.name.ends_with(rest), "save_adapter: {} has no published name of its own",
            module);
      saved = other.name.substr(0, other.name.size() - rest.size());
      tensors_[key_start + other.name] =
          other.transposed ? parameter->value.transpose(0, 1) : parameter->value;
      taken_.insert(parameter);
    }
    config_.saved.push_back(saved);
  }

  const PublishedModel& model_;
  AdapterNames names_;
  AdapterConfig config_;
  std::map<std::string, Tensor> tensors_;
  std::set<const Parameter*> taken_;
};

}  // namespace

void save_adapter(Pretrained& pretrained, const std::string& folder,
                  const AdapterOptions& options) {
  const PublishedModel model{*pretrained.model, pretrained.tables, pretrained.model->parts().head};
  AdapterOptions own = options;
  if (own.task_type.empty() && dynamic_cast<const TokenModel*>(&model.model))
    own.task_type = model.head.empty() ? "CAUSAL_LM" : "SEQ_CLS";
  save_adapter(model, folder, own);
}

void save_adapter(const PublishedModel& model, const std::string& folder,
                  const AdapterOptions& options) {
  AdapterWriter writer(model, options);
  writer.add_layers();
  writer.add_others();
  writer.write(folder);
}

}  // namespace sotto::nn
