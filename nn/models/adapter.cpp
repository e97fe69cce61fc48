#include "nn/models/adapter.h"

#include <filesystem>
#include <set>

#include "core/io/atomic_file.h"
#include "core/io/safetensors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/models/adapter_config.h"
#include "nn/models/adapter_names.h"
#include "nn/models/path_pattern.h"

namespace sotto::nn {

namespace {

constexpr std::size_t max_config_bytes = std::size_t{1} << 24;
const std::string key_start = "base_model.model.", weight_end = ".weight";

std::string config_in(const std::string& folder) {
  return std::filesystem::path(folder) / "adapter_config.json";
}
std::string tensors_in(const std::string& folder) {
  return std::filesystem::path(folder) / "adapter_model.safetensors";
}

// The text without its ending, if it ends so.
std::optional<std::string> without_ending(const std::string& text, const std::string& ending) {
  if (!text.ends_with(ending) || text.size() == ending.size()) return std::nullopt;
  return text.substr(0, text.size() - ending.size());
}

std::map<std::string, Parameter*> parameters_by_name(Module& model) {
  const NamedParameters named = model.named_parameters();
  return {named.begin(), named.end()};
}

// A factor of LoRA in a file.
struct Factor {
  std::string key = {};
  Tensor value = {};
};
struct Factors {
  std::string published = {};  // path of the module
  Factor a = {}, b = {};
};

// The tensors of an adapter's file, by their places in the model.
class AdapterFile {
 public:
  AdapterFile(const std::string& folder, const AdapterNames& names)
      : path_(tensors_in(folder)), names_(names) {
    for (const auto& [key, tensor] : load_safetensors(path_).tensors) {
      check(key.starts_with(key_start), "{}: tensor {} does not begin with {}", path_, key,
            key_start);
      // The values before training of a module that is stored whole.
      if (key.find(".original_module.") != std::string::npos) continue;
      if (!add_factor(key, tensor)) add_whole(key, tensor);
    }
    check(!factors_.empty(), "{}: no factors of LoRA", path_);
    for (const auto& [path, factors] : factors_)
      check(factors.a.value.defined() && factors.b.value.defined(), "{}: only one factor of {}",
            path_, factors.published);
  }

  // By the paths of modules in the model.
  const std::map<std::string, Factors>& factors() const { return factors_; }

  struct Whole {
    std::string key, name;  // in the file; of the parameter in the model
    bool transposed;
    Tensor value;  // in the model's orientation
  };
  const std::vector<Whole>& whole() const { return whole_; }
  const std::string& path() const { return path_; }

 private:
  bool add_factor(const std::string& key, const Tensor& tensor) {
    const std::string name = key.substr(key_start.size());
    for (const bool first : {true, false}) {
      for (const std::string& ending :
           {std::string(first ? ".lora_A.weight" : ".lora_B.weight"),
            std::string(first ? ".lora_embedding_A" : ".lora_embedding_B")}) {
        const auto module = without_ending(name, ending);
        if (!module) continue;
        const std::string weight = other_name(key, *module + weight_end).name;
        const auto path = without_ending(weight, weight_end);
        check(path.has_value(), "{}: {}: {} is no module's weight", path_, key, weight);
        Factors& factors = factors_[*path];
        factors.published = *module;
        (first ? factors.a : factors.b) = {key, tensor};
        return true;
      }
    }
    check(name.find(".lora_") == std::string::npos, "{}: {} is no factor of a supported kind",
          path_, key);
    return false;
  }

  void add_whole(const std::string& key, const Tensor& tensor) {
    std::string name = key.substr(key_start.size());
    for (const std::string part : {".base_layer", ".modules_to_save"}) {
      const std::size_t at = name.find(part + ".");
      if (at != std::string::npos) name.erase(at, part.size());
    }
    const OtherName other = other_name(key, name);
    check(!other.transposed || tensor.rank() == 2, "{}: {} of shape {} is no matrix", path_, key,
          tensor.shape());
    whole_.push_back({key, other.name, other.transposed,
                      other.transposed ? contiguous(tensor.transpose(0, 1)) : tensor});
  }

  OtherName other_name(const std::string& key, const std::string& published) const {
    const std::optional<OtherName> other = names_.in_model(published);
    check(other.has_value(), "{}: {} belongs to nothing in the model", path_, key);
    return *other;
  }

  std::string path_;
  const AdapterNames& names_;
  std::map<std::string, Factors> factors_;
  std::vector<Whole> whole_;
};

// The options of a module's LoRA, once its factors fit the module.
LoraOptions checked_options(const AdapterFile& file, const Factors& factors, const LoraSizes& sizes,
                            const AdapterConfig& config) {
  const LoraOptions options = config.of(factors.published);
  const Tensor &a = factors.a.value, &b = factors.b.value;
  check(is_float(a.dtype()) && a.rank() >= 2 && a.size(0) == options.rank &&
            a.numel() == options.rank * sizes.in,
        "{}: {} is {}, not of rank {} and {} inputs", file.path(), factors.a.key, a.shape(),
        options.rank, sizes.in);
  check(is_float(b.dtype()) && b.rank() >= 2 && b.size(0) == sizes.out &&
            b.numel() == options.rank * sizes.out,
        "{}: {} is {}, not of {} outputs and rank {}", file.path(), factors.b.key, b.shape(),
        sizes.out, options.rank);
  return options;
}

void set_value(Parameter& parameter, const Tensor& value) {
  const Tensor& old = parameter.value;
  parameter.value = reshape(contiguous(to_dtype(value, old.dtype())), old.shape()).to(old.device());
}

// The parameters of the tensors that are stored whole, in their order.
std::vector<Parameter*> found_parameters(Module& model, const AdapterFile& file) {
  const std::map<std::string, Parameter*> there = parameters_by_name(model);
  std::vector<Parameter*> found;
  for (const AdapterFile::Whole& whole : file.whole()) {
    const auto parameter = there.find(whole.name);
    check(parameter != there.end(), "{}: {}: the model has no {}", file.path(), whole.key,
          whole.name);
    const Shape& shape = parameter->second->value.shape();
    check(is_float(whole.value.dtype()) && whole.value.shape() == shape,
          "{}: {} is {} where the model has {}", file.path(), whole.key, whole.value.shape(),
          shape);
    found.push_back(parameter->second);
  }
  return found;
}

}  // namespace

AdapterReport load_adapter(Pretrained& pretrained, const std::string& folder) {
  return load_adapter({*pretrained.model, pretrained.tables}, folder);
}

AdapterReport load_adapter(const PublishedModel& published, const std::string& folder) {
  Module& model = published.model;
  const std::string path = config_in(folder);
  const AdapterConfig config = parse_adapter_config(read_file(path, max_config_bytes), path);
  const AdapterNames names(published.tables);
  const AdapterFile file(folder, names);
  check(lora_layers(model).empty(), "{}: the model has LoRA already; merge it first", path);
  const std::vector<Parameter*> whole = found_parameters(model, file);
  std::set<std::string> missing;
  for (const auto& [module, factors] : file.factors()) missing.insert(module);
  for (const std::string& layer : layers_for_lora(model)) missing.erase(layer);
  check(missing.empty(), "{}: the model has no layer {} that takes LoRA", file.path(),
        missing.empty() ? "" : *missing.begin());
  add_lora(model, [&](const std::string& layer, const Module& module) {
    const auto factors = file.factors().find(layer);
    return factors == file.factors().end()
               ? std::nullopt
               : std::optional(checked_options(file, factors->second, *lora_sizes(module), config));
  });
  AdapterReport report;
  model.freeze();
  for (const auto& [module, layer] : lora_layers(model)) {
    const Factors& factors = file.factors().at(module);
    report.tensors[factors.a.key] = {layer->lora_a.get()};
    report.tensors[factors.b.key] = {layer->lora_b.get()};
    set_value(*layer->lora_a, factors.a.value);
    set_value(*layer->lora_b, factors.b.value);
  }
  for (std::size_t i = 0; i < whole.size(); ++i) {
    report.tensors[file.whole()[i].key] = {whole[i], file.whole()[i].transposed};
    set_value(*whole[i], file.whole()[i].value);
  }
  // PEFT stores an adapted table's weight, too, which stays frozen.
  for (const auto& [key, tensor] : report.tensors)
    tensor.parameter->trainable = !key.ends_with(".base_layer.weight");
  report.summary = summary_of_tuning(model);
  return report;
}

}  // namespace sotto::nn
