#include "nn/models/adapter_config.h"

#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "core/io/strict_json.h"
#include "nn/models/config.h"
#include "nn/models/path_pattern.h"

namespace sotto::nn {

namespace {

using nlohmann::json;

constexpr JsonLimits limits{.depth = 8, .max_entries = 100'000};

// Fields that do not change the values of the factors or their meaning, or that the keys of the
// tensors' file repeat.
const std::set<std::string> passed_over{"auto_mapping",
                                        "base_model_name_or_path",
                                        "exclude_modules",
                                        "fan_in_fan_out",
                                        "inference_mode",
                                        "layers_pattern",
                                        "layers_to_transform",
                                        "megatron_core",
                                        "peft_version",
                                        "qalora_group_size",
                                        "revision",
                                        "runtime_config",
                                        "task_type"};

// The starts after which the base's own weights are as they were: others, such as "pissa", change
// them, and the factors are relative to what they leave.
const std::set<json> plain_starts{true, false, nullptr, "gaussian", "orthogonal", "eva"};

class Fields {
 public:
  Fields(const json& all, const std::string& where) : all_(all), where_(where) {}

  std::int64_t count(const json& value, const std::string& field) const {
    check(value.is_number_integer() && value >= 1 && value <= max_rank,
          "{}: \"{}\" is {}, not a rank from 1 to {}", where_, field, shown(value), max_rank);
    return value.get<std::int64_t>();
  }
  double number(const json& value, const std::string& field) const {
    check(value.is_number() && std::isfinite(value.get<double>()), "{}: \"{}\" is {}, not a number",
          where_, field, shown(value));
    return value.get<double>();
  }
  bool flag(const std::string& field) const {
    const json value = all_.value(field, json());
    check(value.is_null() || value.is_boolean(), "{}: \"{}\" is {}, not true or false", where_,
          field, shown(value));
    return value.is_boolean() && value.get<bool>();
  }
  const json* find(const std::string& field) const {
    const auto found = all_.find(field);
    return found == all_.end() || found->is_null() ? nullptr : &*found;
  }
  // A list of texts, or one text.
  void check_texts(const std::string& field) const {
    const json* value = find(field);
    if (!value || value->is_string()) return;
    bool texts = value->is_array();
    for (const json& entry : *value) texts = texts && entry.is_string();
    check(texts, "{}: \"{}\" is neither a list of names nor a pattern", where_, field);
  }
  template <class Number, class Read>
  Patterns<Number> patterns(const std::string& field, Read&& read) const {
    Patterns<Number> y;
    const json* value = find(field);
    if (!value) return y;
    check(value->is_object(), "{}: \"{}\" is no object of patterns", where_, field);
    for (const auto& [pattern, number] : value->items()) {
      static_cast<void>(PathPattern(pattern));
      y.emplace_back(pattern, read(number, field));
    }
    return y;
  }
  const std::string& where() const { return where_; }

 private:
  static constexpr std::int64_t max_rank = 1 << 20;

  const json& all_;
  const std::string& where_;
};

// True if the field says that its method is not used.
bool off(const json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

void check_others(const json& all, const std::string& where) {
  static const std::set<std::string> read{"alpha_pattern",     "bias",
                                          "init_lora_weights", "lora_alpha",
                                          "lora_dropout",      "modules_to_save",
                                          "peft_type",         "r",
                                          "rank_pattern",      "target_modules",
                                          "use_rslora"};
  for (const auto& [field, value] : all.items()) {
    check(read.contains(field) || passed_over.contains(field) || off(value),
          "{}: \"{}\" is {}, which is not supported", where, field, shown(value));
  }
  const auto field = [&](const char* name, const json& otherwise, const auto& fits,
                         const char* what) {
    const json value = all.value(name, otherwise);
    check(fits(value), "{}: \"{}\" is {}, {}", where, name, shown(value), what);
  };
  field(
      "peft_type", {}, [](const json& x) { return x == "LORA"; }, "not \"LORA\"");
  field(
      "init_lora_weights", {}, [](const json& x) { return plain_starts.contains(x); },
      "which changes the base's weights: not supported");
  field(
      "bias", "none", [](const json& x) { return x == "none" || x == "lora_only" || x == "all"; },
      "not none, lora_only or all");
}

template <class Number>
Number first_fit(const Patterns<Number>& patterns, const std::string& path, Number otherwise) {
  for (const auto& [pattern, number] : patterns) {
    if (PathPattern(pattern).fits_ending(path)) return number;
  }
  return otherwise;
}

}  // namespace

LoraOptions AdapterConfig::of(const std::string& path) const {
  LoraOptions options = lora;
  options.rank = first_fit(ranks, path, lora.rank);
  options.alpha = first_fit(alphas, path, lora.alpha);
  return options;
}

AdapterConfig parse_adapter_config(const std::string& text, const std::string& where) {
  const json all = parse_json_object(text, where, limits);
  check_others(all, where);
  const Fields fields(all, where);
  AdapterConfig config;
  const auto rank = [&](const json& x, const std::string& field) { return fields.count(x, field); };
  const auto alpha = [&](const json& x, const std::string& field) {
    return fields.number(x, field);
  };
  config.lora.rank = rank(all.value("r", json(8)), "r");
  config.lora.alpha = alpha(all.value("lora_alpha", json(8)), "lora_alpha");
  config.lora.rank_stabilized = fields.flag("use_rslora");
  config.lora.dropout = fields.number(all.value("lora_dropout", json(0)), "lora_dropout");
  check(config.lora.dropout >= 0 && config.lora.dropout < 1, "{}: \"{}\" is {}", where,
        "lora_dropout", config.lora.dropout);
  config.ranks = fields.patterns<std::int64_t>("rank_pattern", rank);
  config.alphas = fields.patterns<double>("alpha_pattern", alpha);
  for (const char* field : {"target_modules", "modules_to_save"}) fields.check_texts(field);
  return config;
}

std::string to_json(const AdapterConfig& config) {
  const auto text = [](const std::string& x) { return x.empty() ? json() : json(x); };
  const auto list = [](const auto& x) { return x.empty() ? json() : json(x); };
  const auto object = [](const auto& patterns) {
    json y = json::object();
    for (const auto& [pattern, number] : patterns) y[pattern] = number;
    return y;
  };
  return json{{"peft_type", "LORA"},
              {"task_type", text(config.task_type)},
              {"base_model_name_or_path", text(config.base_model)},
              {"inference_mode", true},
              {"r", config.lora.rank},
              {"lora_alpha", config.lora.alpha},
              {"lora_dropout", config.lora.dropout},
              {"use_rslora", config.lora.rank_stabilized},
              {"rank_pattern", object(config.ranks)},
              {"alpha_pattern", object(config.alphas)},
              {"target_modules", config.targets},
              {"modules_to_save", list(config.saved)},
              {"fan_in_fan_out", config.transposed},
              {"bias", config.bias}}
             .dump(2) +
         "\n";
}

}  // namespace sotto::nn
