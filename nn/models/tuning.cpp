#include "nn/models/tuning.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "nn/layers/activation_layers.h"
#include "nn/layers/norm_layers.h"
#include "nn/models/path_pattern.h"

namespace sotto::nn {

namespace {

using Kind = Tuning::Kind;

// A parameter, and what decides whether it is trained.
struct Weight {
  std::string path;  // in the model
  std::string name;  // in its module
  Parameter* parameter;
  bool statistic = false, of_norm = false;
};

// Scale and shift are of a module whose weight has one axis, a number for each channel.
bool is_norm(Module& module) {
  bool norm = false;
  module.visit(
      Visitor([&](const std::string& name,
                  const Parameter& p) { norm = norm || (name == "weight" && p.value.rank() == 1); },
              [](const std::string&, const Module&) {}));
  return norm && !dynamic_cast<const PRelu*>(&module);
}

class Weights {
 public:
  // Each parameter once, by its first path, as named_parameters() has them.
  static std::vector<Weight> of(Module& model) {
    Weights weights;
    weights.descend(model, "");
    return std::move(weights.found_);
  }

 private:
  void descend(Module& module, const std::string& path) {
    const bool norm = is_norm(module), statistics = dynamic_cast<const Standardize*>(&module);
    module.visit(Visitor(
        [&](const std::string& name, Parameter& p) {
          if (!seen_.insert(&p).second) return;
          const bool statistic = statistics || name.starts_with("running_");
          found_.push_back({path + name, name, &p, statistic, norm});
        },
        [&](const std::string& name, Module& child) { descend(child, path + name + "."); }));
  }

  std::vector<Weight> found_;
  std::set<const Parameter*> seen_;
};

// The number of the block that the path is in; nullopt if it is in none.
std::optional<std::int64_t> block_of(const std::string& path, const ModelParts& parts) {
  for (std::int64_t k = 0; k < parts.block_count; ++k) {
    if (is_within(path, parts.block(k))) return k;
  }
  return std::nullopt;
}

// True for paths in the last blocks and behind them; for all paths if the tuning names no number.
bool is_in_last(const std::string& path, const ModelParts& parts, const Tuning& tuning) {
  if (tuning.blocks == 0) return true;
  const std::int64_t block = block_of(path, parts).value_or(parts.block_count);
  return !parts.in_embeddings(path) && block >= parts.block_count - tuning.blocks;
}

bool is_bias(const std::string& name) { return name.starts_with("bias") || name.ends_with("bias"); }

bool is_trained(const Weight& weight, const ModelParts& parts, const Tuning& tuning) {
  if (weight.statistic) return false;
  if (parts.in_embeddings(weight.path) && !tuning.train_embeddings) return false;
  if (parts.in_head(weight.path)) return true;
  if (!is_in_last(weight.path, parts, tuning)) return false;
  switch (tuning.kind) {
    case Kind::all:
    case Kind::last: return true;
    case Kind::head: return false;
    case Kind::bitfit: return is_bias(weight.name);
    case Kind::norms: return weight.of_norm;
    case Kind::lora: return weight.name == "lora_a" || weight.name == "lora_b";
  }
  return false;
}

// Numbers in the paths as "*", each path once: "h.*.attn.c_attn".
std::set<std::string> kinds_of(const std::vector<std::string>& paths) {
  std::set<std::string> kinds;
  for (const std::string& path : paths) {
    std::string kind;
    for (std::size_t i = 0; i < path.size(); ++i) {
      const bool digit = path[i] >= '0' && path[i] <= '9', starts = i == 0 || path[i - 1] == '.';
      const std::size_t end = std::min(path.find('.', i), path.size());
      const bool number = digit && starts && path.find_first_not_of("0123456789", i) >= end;
      kind += number ? '*' : path[i];
      if (number) i = end - 1;
    }
    kinds.insert(kind);
  }
  return kinds;
}

void adapt(Module& model, const ModelParts& parts, const Tuning& tuning) {
  const bool linear = tuning.targets == all_lora_targets;
  const std::string text = tuning.targets.empty() ? default_lora_targets : tuning.targets;
  const PathPattern pattern(text);
  // Without the output layer of a language model, as in PEFT.
  const auto in_blocks = [&](const std::string& path) {
    return parts.block_count == 0 || block_of(path, parts);
  };
  const auto chosen = [&](const std::string& path, bool is_linear) {
    if (parts.in_head(path) || !is_in_last(path, parts, tuning)) return false;
    return linear ? is_linear && in_blocks(path) : pattern.fits_ending(path);
  };
  const std::vector<std::string> there = layers_for_lora(model);
  bool any = !add_lora(model, [&](const std::string& path, const Module& layer) {
                const bool is_linear = dynamic_cast<const Linear*>(&layer) ||
                                       dynamic_cast<const QuantizedLinear*>(&layer);
                return chosen(path, is_linear) ? std::optional(tuning.lora) : std::nullopt;
              }).empty();
  for (const auto& [path, layer] : lora_layers(model)) any = any || chosen(path, true);
  check(any, "tuning: LoRA: \"{}\" fits no layer{}; there are {}", text,
        tuning.blocks > 0 ? fmt::format(" in the last {} blocks", tuning.blocks) : "",
        fmt::format("{}", fmt::join(kinds_of(there), ", ")));
}

// Modules that have no parameters, too, such as norms that were folded away.
void add_module_paths(Module& module, const std::string& path, std::vector<std::string>& paths) {
  module.visit(Visitor([](const std::string&, Parameter&) {},
                       [&](const std::string& name, Module& child) {
                         paths.push_back(path + name);
                         add_module_paths(child, path + name + ".", paths);
                       }));
}

void check_parts(Module& model, const std::vector<std::string>& parts) {
  std::vector<std::string> paths;
  add_module_paths(model, "", paths);
  for (const Weight& weight : Weights::of(model)) paths.push_back(weight.path);
  for (const NamedBlocks& weight : named_blocks(model)) paths.push_back(weight.name);
  for (const std::string& part : parts) {
    const auto is_in = [&](const std::string& path) { return is_within(path, part); };
    check(std::ranges::any_of(paths, is_in), "tuning: the model has no part \"{}\"", part);
  }
}

void check_there(Module& model, const ModelParts& parts, const Tuning& tuning) {
  check_parts(model, parts.head);
  check_parts(model, parts.embeddings);
  check(tuning.kind != Kind::head || !parts.head.empty(),
        "tuning: the model has no head of its own; train \"last:1\", \"lora:8\" or \"all\"");
  if (tuning.kind != Kind::last && tuning.blocks == 0) return;
  check(tuning.blocks >= 1 && tuning.blocks <= parts.block_count,
        "tuning: the last {} blocks of a model that has {}", tuning.blocks, parts.block_count);
}

}  // namespace

TuningSummary apply_tuning(PretrainedModel& model, const Tuning& tuning) {
  return apply_tuning(model, model.parts(), tuning);
}

TuningSummary apply_tuning(Module& model, const ModelParts& parts, const Tuning& tuning) {
  check_there(model, parts, tuning);
  for (const NamedBlocks& blocks : named_blocks(model))
    check(!is_trained({blocks.name, "weight", nullptr}, parts, tuning),
          "tuning: {} is quantised and cannot be trained; \"lora:8\" adapts it", blocks.name);
  if (tuning.kind == Kind::lora) adapt(model, parts, tuning);
  for (const Weight& weight : Weights::of(model))
    weight.parameter->trainable = is_trained(weight, parts, tuning);
  TuningSummary summary = summary_of_tuning(model);
  check(summary.trained > 0, "tuning: nothing would be trained of {} parameters", summary.frozen);
  return summary;
}

TuningSummary summary_of_tuning(Module& model) {
  TuningSummary summary;
  for (const auto& [name, parameter] : model.named_parameters()) {
    const bool trained = parameter->trainable;
    (trained ? summary.trained : summary.frozen) += parameter->value.numel();
    (trained ? summary.trained_bytes : summary.frozen_bytes) += parameter->value.bytes();
    if (trained) summary.trained_names.push_back(name);
  }
  for (const NamedBlocks& weight : named_blocks(model)) {
    summary.frozen += weight.blocks->shape.numel();
    summary.frozen_bytes += weight.blocks->bytes.bytes();
  }
  for (const auto& [path, layer] : lora_layers(model)) summary.adapted.push_back(path);
  return summary;
}

std::int64_t first_trained_block(PretrainedModel& model) {
  const ModelParts parts = model.parts();
  std::int64_t first = parts.block_count;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!parameter->trainable) continue;
    const bool in_front = parts.in_embeddings(name);
    first = std::min(first, in_front ? 0 : block_of(name, parts).value_or(parts.block_count));
  }
  return first;
}

TuningSummary train_only(Module& model, const std::string& pattern) {
  const PathPattern fitting(pattern);
  const std::vector<Weight> weights = Weights::of(model);
  std::vector<std::string> paths;
  bool any = false;
  for (const Weight& weight : weights) {
    paths.push_back(weight.path);
    any = any || (!weight.statistic && fitting.fits_ending(weight.path));
  }
  check(any, "tuning: \"{}\" fits no parameter; there are {}", pattern,
        fmt::format("{}", fmt::join(kinds_of(paths), ", ")));
  for (const Weight& weight : weights)
    weight.parameter->trainable = !weight.statistic && fitting.fits_ending(weight.path);
  return summary_of_tuning(model);
}

}  // namespace sotto::nn
