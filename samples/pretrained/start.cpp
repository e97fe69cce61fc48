#include "samples/pretrained/start.h"

#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io/xxh64.h"
#include "nn/layers/quantized_layers.h"
#include "nn/models/load_weights.h"
#include "nn/state.h"
#include "samples/cli/program.h"

namespace sotto::samples {

void check_start(const Start& start) {
  nn::parse_tuning(start.tune);
  if (start.head_bound != 0) check_clip_bound(start.head_bound);
  require(start.head_rate >= 0, "--head-lr", start.head_rate, "a number from 0");
}

std::vector<TaskSetting> start_settings(Start& start) {
  return {{init_setting, &start.init},
          {"architecture", &start.architecture},
          {"tune", &start.tune},
          {"head bound", &start.head_bound},
          {"head learning rate", &start.head_rate, OnResume::may_change}};
}

StartedModel start_model(const Start& start, nn::PretrainedOptions options) {
  options.architecture = start.architecture;
  const nn::Tuning tuning = nn::parse_tuning(start.tune);
  // Blocks are frozen: what is trained whole must be widened.
  options.quantized = tuning.kind == nn::Tuning::Kind::lora;
  StartedModel started{.pretrained = nn::load_pretrained(start.init, options)};
  started.summary = nn::apply_tuning(*started.pretrained.model, tuning);
  check(start.weights.empty() || start.weights == frozen_hash(started.pretrained),
        "{}: its weights are not those that the model was tuned from", start.init);
  return started;
}

std::string frozen_hash(const nn::Pretrained& pretrained) {
  std::uint64_t hash = xxh64(std::as_bytes(std::span(pretrained.config)));
  const auto add = [&](const std::string& name, const Tensor& value) {
    hash = xxh64(std::as_bytes(std::span(name)), hash);
    hash = xxh64({value.view().as<const std::byte>(), value.bytes()}, hash);
  };
  nn::PretrainedModel& model = *pretrained.model;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!parameter->trainable) add(name, parameter->value);
  }
  for (const auto& [name, value] : nn::statistics_of(model)) add(name, *value);
  for (const nn::NamedBlocks& weight : nn::named_blocks(model))
    add(weight.name, weight.blocks->bytes);
  return fmt::format("{:016x}", hash);
}

std::optional<ModelPart> head_of(const Start& start, const nn::PretrainedModel& model,
                                 const Settings& settings) {
  if (start.head_bound == 0 && start.head_rate == 0) return std::nullopt;
  ModelPart part{.paths = model.parts().head};
  check(!part.paths.empty(), "--head-bound, --head-lr: the model has no head of its own");
  check(start.head_bound == 0 || settings.clip_groups == "flat",
        "--clip-groups: {}: with --head-bound there are two groups, the head and the rest",
        settings.clip_groups);
  part.clip_bound = start.head_bound;  // 0: clipped with the rest
  part.learning_rate = start.head_rate > 0 ? start.head_rate : settings.learning_rate;
  return part;
}

std::map<std::string, Tensor> trained_tensors(nn::Module& model) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (parameter->trainable) tensors.emplace(name, parameter->value);
  }
  return tensors;
}

void set_trained(nn::Module& model, const std::map<std::string, Tensor>& tensors,
                 const std::string& source) {
  std::map<std::string, Tensor> all = nn::parameter_tensors(model);
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!parameter->trainable) continue;
    const auto at = tensors.find(name);
    check(at != tensors.end(), "{}: {} is missing", source, name);
    all[name] = at->second;
  }
  for (const auto& [name, tensor] : tensors) all.insert_or_assign(name, tensor);
  nn::set_parameters(model, all, source);
}

nlohmann::json to_json(const Start& start) {
  return {{"init", start.init},
          {"architecture", start.architecture},
          {"tune", start.tune},
          {"weights", start.weights}};
}

Start start_from_json(const nlohmann::json& object) {
  return {.init = object.at("init"),
          .architecture = object.at("architecture"),
          .tune = object.at("tune"),
          .weights = object.at("weights")};
}

}  // namespace sotto::samples
