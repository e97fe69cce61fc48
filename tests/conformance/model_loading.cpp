#include <algorithm>

#include "autograd/ops.h"
#include "core/join.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/models/adapter.h"
#include "tests/conformance/model_case.h"

namespace sotto::conformance {

namespace {

// The options under which load_pretrained() makes the model of the case.
nn::PretrainedOptions options_of(const Case& c) {
  nn::PretrainedOptions options;
  const auto layout = field<std::string>(c.body, "layout");
  if (layout == "transformers") options.architecture = c.type;
  if (c.body.contains("num_labels")) options.classes = field<std::int64_t>(c.body, "num_labels");
  if (layout != "torchvision") return options;
  const Json arguments = field<Json>(c.body, "arguments");
  options.architecture = "resnet";
  if (field<std::string>(arguments, "norm") == "group")
    options.norm_groups = field<std::int64_t>(arguments, "groups");
  return options;
}

// Reasons in brackets follow the names in a report.
std::set<std::string> without_reasons(const std::vector<std::string>& names) {
  std::set<std::string> plain;
  for (const std::string& name : names) plain.insert(name.substr(0, name.find(' ')));
  return plain;
}

std::set<std::string> listed(const Case& c, const std::string& name) {
  const auto names = field<std::vector<std::string>>(c.body, name);
  return {names.begin(), names.end()};
}

void expect_names(Comparison& comparison, const std::string& what, const std::set<std::string>& got,
                  const std::set<std::string>& expected) {
  std::vector<std::string> more, less;
  std::set_difference(got.begin(), got.end(), expected.begin(), expected.end(),
                      std::back_inserter(more));
  std::set_difference(expected.begin(), expected.end(), got.begin(), got.end(),
                      std::back_inserter(less));
  if (!more.empty()) comparison.fail(what + ": not expected: " + join(more, " "));
  if (!less.empty()) comparison.fail(what + ": missing: " + join(less, " "));
}

}  // namespace

Tensor StoredParameter::joined(const std::vector<Tensor>& parts) const {
  const Tensor all = parts.size() == 1 ? parts[0] : concat(parts, 0);
  return transposed ? contiguous(all.permute({1, 0})) : all;
}

Tensor StoredParameter::value() const {
  std::vector<Tensor> parts;
  for (const Parameter* parameter : parameters) parts.push_back(parameter->value);
  return joined(parts);
}

Tensor StoredParameter::of(const Gradients& gradients) const {
  std::vector<Tensor> parts;
  for (const Parameter* parameter : parameters) {
    parts.push_back(zeros(parameter->value.shape(), Dtype::f64, parameter->value.device()));
    for (const auto& [owner, gradient] : gradients) {
      if (owner == parameter) parts.back() = to_dtype(gradient, Dtype::f64);
    }
  }
  return joined(parts);
}

namespace {

// The tensor's name in the file, which may lack the prefix that saving adds with a head, and may
// have the older endings of norms.
std::string name_in_file(const std::string& name, const std::set<std::string>& in_file) {
  const std::string bare = name.substr(name.find('.') + 1);
  for (std::string own : {name, bare}) {
    if (in_file.count(own) > 0) return own;
    for (const auto& [ending, old] : {std::pair("LayerNorm.weight", "LayerNorm.gamma"),
                                      std::pair("LayerNorm.bias", "LayerNorm.beta")}) {
      if (own.ends_with(ending)) own.replace(own.rfind("LayerNorm"), std::string::npos, old);
    }
    if (in_file.count(own) > 0) return own;
  }
  return name;
}

}  // namespace

ModelCase::ModelCase(const Case& c, Dtype dtype)
    : c(c),
      dtype(dtype),
      loaded(
          nn::load_pretrained(c.folder / field<std::string>(c.body, "checkpoint"), options_of(c))) {
  std::map<std::string, Parameter*> named;
  for (const auto& [name, parameter] : loaded.model->named_parameters()) named[name] = parameter;
  const std::set<std::string> in_file = without_reasons(loaded.report.loaded);
  for (const nn::StoredName& name : loaded.names) {
    StoredParameter entry{.parameters = {}, .transposed = name.transposed};
    for (const std::string& part : name.parameters) {
      if (named.count(part)) entry.parameters.push_back(named.at(part));
    }
    if (!entry.parameters.empty()) stored.emplace(name_in_file(name.file, in_file), entry);
  }
}

void ModelCase::check_lists(Comparison& comparison) const {
  std::set<std::string> from_checkpoint = listed(c, "statistics"), fresh, tied;
  for (const Json& entry : field<std::vector<Json>>(c.body, "params")) {
    const auto name = field<std::string>(entry, "name");
    const auto source = field<std::string>(entry, "source");
    if (source == "adapter") continue;
    (source == "case" ? fresh : from_checkpoint).insert(name);
    const auto found = stored.find(name);
    if (found == stored.end()) {
      comparison.fail(name + ": the model has no such parameter");
    } else if (found->second.value().shape() != shape_field(entry, "shape")) {
      comparison.fail(fmt::format("{}: shape {}, not {}", name, found->second.value().shape(),
                                  shape_field(entry, "shape")));
    }
  }
  const Json shared = field<Json>(c.body, "tied");
  for (const auto& [name, other] : shared.items()) tied.insert(name);
  const nn::LoadReport& report = loaded.report;
  expect_names(comparison, "loaded", without_reasons(report.loaded), from_checkpoint);
  expect_names(comparison, "skipped", without_reasons(report.skipped), listed(c, "ignored"));
  expect_names(comparison, "tied", without_reasons(report.tied), tied);
  expect_names(comparison, "drawn anew", without_reasons(report.drawn_anew), fresh);
}

void ModelCase::prepare() {
  for (const auto& [name, parameter] : loaded.model->named_parameters())
    parameter->trainable = false;
  for (const Json& entry : field<std::vector<Json>>(c.body, "params")) {
    const auto name = field<std::string>(entry, "name");
    const auto found = stored.find(name);
    if (found == stored.end()) continue;
    StoredParameter& parameter = found->second;
    for (Parameter* part : parameter.parameters) part->trainable = field<bool>(entry, "trainable");
    if (!c.has("param." + name)) continue;
    const Tensor& start = c.tensor("param." + name).value;
    if (parameter.parameters.size() != 1) throw Malformed(name + ": a start value of several");
    parameter.parameters[0]->value =
        clone(parameter.transposed ? contiguous(start.permute({1, 0})) : start);
  }
  place();
}

void ModelCase::add_adapter(Comparison& comparison) {
  const auto folder = field<std::string>(c.body, "adapter");
  const nn::AdapterReport report = nn::load_adapter(loaded, c.folder / folder);
  std::set<std::string> got, expected;
  for (const auto& [name, tensor] : report.tensors) {
    got.insert(name);
    stored[name] = {.parameters = {tensor.parameter}, .transposed = tensor.transposed};
  }
  for (const Json& entry : field<std::vector<Json>>(c.body, "params")) {
    if (field<std::string>(entry, "source") == "adapter")
      expected.insert(field<std::string>(entry, "name"));
  }
  expect_names(comparison, "adapter", got, expected);
  place();
}

void ModelCase::place() {
  if (dtype == Dtype::f64) loaded.model->to(Dtype::f64);
  loaded.model->to(c.tensor("in.labels").value.device());
}

std::vector<Parameter*> ModelCase::trained() {
  std::vector<Parameter*> all;
  for (const auto& [name, parameter] : loaded.model->named_parameters()) {
    if (parameter->trainable) all.push_back(parameter);
  }
  return all;
}

std::vector<std::string> ModelCase::block_paths() const {
  std::vector<std::string> paths;
  const nn::ModelParts parts = loaded.model->parts();
  const bool stages = c.type.ends_with("ResNet");
  for (std::int64_t k = 0; k < (stages ? 4 : parts.block_count); ++k)
    paths.push_back(stages ? fmt::format("layer{}", k + 1) : parts.block(k));
  return paths;
}

Var ModelCase::logits(Tape& tape) {
  const auto input = [&](const std::string& name) -> std::optional<Var> {
    if (!c.has("in." + name)) return std::nullopt;
    return tape.input(in_dtype(c.tensor("in." + name).value, dtype));
  };
  if (const std::optional<Var> pixels = input("pixel_values")) return (*loaded.model)(*pixels);
  const std::optional<Var> ids = input("input_ids");
  if (!ids) throw Malformed("neither input_ids nor pixel_values");
  return loaded.tokens()(nn::TokenInputs{.ids = *ids,
                                         .mask = input("attention_mask"),
                                         .positions = input("position_ids"),
                                         .token_types = input("token_type_ids")});
}

Var ModelCase::loss(const Var& logits) const {
  const Json loss = field<Json>(c.body, "loss");
  const auto type = field<std::string>(loss, "type");
  const Tensor& labels = c.tensor("in.labels").value;
  if (type == "mse") {
    const Var wanted = logits.tape().input(reshape(in_dtype(labels, dtype), logits.shape()));
    return mse_loss(cast(logits, wanted.dtype()), wanted);
  }
  if (type != "cross_entropy") throw Malformed("loss is " + type);
  if (!loss.contains("shift")) return cross_entropy(logits, labels);
  const std::int64_t t = labels.shape()[1];
  const CrossEntropyOptions options{.class_axis = -1,
                                    .ignore_index = field<std::int64_t>(loss, "ignore_index")};
  return token_loss(slice(logits, 1, 0, t - 1), contiguous(labels.slice(1, 1, t)), options,
                    field<std::string>(loss, "token_reduce"));
}

}  // namespace sotto::conformance
