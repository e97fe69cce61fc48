// Prints, as JSON, the peak bytes of one training step by phase: of a model of
// samples/models/registry.h with some settings, or of a table of docs/appendix/memory-notes.md.
//   bench_memory MODEL BATCH [NAME=VALUE]...
//     accumulation=N, privacy=none|one_pass|two_passes|by_layer, optimizer=sgd|momentum|adam,
//     checkpoint=N, precision=f32|bf16|f16, state=f32|bf16, update=apart|fused, loss=classes|sum
//   bench_memory ablation BATCH      ResNet-50 with each technique, ordinary and private
//   bench_memory published BATCH     Opacus' perceptron, ordinary and private
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "samples/models/registry.h"
#include "samples/models/step_bytes.h"

using namespace sotto;
using models::StepOptimizer;
using models::StepPrivacy;
using nlohmann::ordered_json;

namespace {

struct Case {
  std::string name;
  std::string model;
  std::int64_t batch = 1;
  models::StepSetting setting{};
  bool sum_of_logits = false;  // the loss, which keeps nothing
};

template <class T>
using Names = std::map<std::string, T>;

const Names<StepPrivacy> privacies = {{"none", StepPrivacy::none},
                                      {"one_pass", StepPrivacy::one_pass},
                                      {"two_passes", StepPrivacy::two_passes},
                                      {"by_layer", StepPrivacy::by_layer}};
const Names<StepOptimizer> optimizers = {{"sgd", StepOptimizer::sgd},
                                         {"momentum", StepOptimizer::momentum},
                                         {"adam", StepOptimizer::adam}};
const Names<Dtype> precisions = {{"f32", Dtype::f32}, {"bf16", Dtype::bf16}, {"f16", Dtype::f16}};

template <class T>
T value_of(const Names<T>& names, const std::string& text) {
  const auto found = names.find(text);
  check(found != names.end(), "bench_memory: {} is no value of this option", text);
  return found->second;
}

template <class T>
std::string name_of(const Names<T>& names, T wanted) {
  for (const auto& [name, value] : names) {
    if (value == wanted) return name;
  }
  return {};
}

ordered_json measured(const Case& c) {
  const models::Entry& entry = models::parse_entry(c.model);
  const auto loss = [&](nn::Module& model, Tape& tape, std::int64_t n) {
    const models::Examples examples = entry.random_examples(n);
    const Var logits = model(tape.input(examples.inputs));
    return c.sum_of_logits ? sum_per_sample(logits) : entry.losses(logits, examples.labels);
  };
  const models::StepBytes bytes = models::StepRun(entry.make, loss, c.setting).step(c.batch);
  ordered_json phases;
  for (const memory::PhaseTotal& phase : bytes.phases)
    phases[phase.name] = {{"peak", phase.peak_bytes.at(0)}, {"seconds", phase.seconds}};
  return {{"case", c.name},
          {"model", c.model},
          {"batch", c.batch},
          {"accumulation", c.setting.accumulation},
          {"privacy", name_of(privacies, c.setting.privacy)},
          {"optimizer", name_of(optimizers, c.setting.optimizer)},
          {"checkpoint", c.setting.checkpoint},
          {"precision", name_of(precisions, c.setting.precision)},
          {"state", c.setting.bf16_state ? "bf16" : "f32"},
          {"update", c.setting.fused_update ? "fused" : "apart"},
          {"parameters", bytes.parameters},
          {"optimizer_state", bytes.state},
          {"before", bytes.before},
          {"kept", bytes.kept},
          {"gradients", bytes.gradients},
          {"peak", bytes.peak},
          {"phases", phases}};
}

void set(Case& c, const std::string& option) {
  const std::size_t equals = option.find('=');
  check(equals != std::string::npos, "bench_memory: {} is not NAME=VALUE", option);
  const std::string name = option.substr(0, equals), value = option.substr(equals + 1);
  models::StepSetting& s = c.setting;
  const Names<std::function<void()>> setters = {
      {"accumulation", [&] { s.accumulation = std::stoll(value); }},
      {"checkpoint", [&] { s.checkpoint = std::stoi(value); }},
      {"privacy", [&] { s.privacy = value_of(privacies, value); }},
      {"optimizer", [&] { s.optimizer = value_of(optimizers, value); }},
      {"precision", [&] { s.precision = value_of(precisions, value); }},
      {"state", [&] { s.bf16_state = value == "bf16"; }},
      {"update", [&] { s.fused_update = value == "fused"; }},
      {"loss", [&] { c.sum_of_logits = value == "sum"; }},
  };
  const auto found = setters.find(name);
  check(found != setters.end(), "bench_memory: no option is called {}", name);
  found->second();
}

// With momentum; for each technique the ordinary step and the private ones.
std::vector<Case> ablation(std::int64_t batch) {
  std::vector<Case> cases;
  const auto add = [&](const char* name, std::int64_t parts, Dtype precision, int checkpoint) {
    for (const auto& [privacy_name, privacy] : privacies) {
      cases.push_back({name,
                       "resnet50",
                       batch,
                       {.accumulation = parts,
                        .privacy = privacy,
                        .optimizer = StepOptimizer::momentum,
                        .precision = precision,
                        .checkpoint = checkpoint}});
    }
  };
  constexpr std::int64_t four = 4;
  add("baseline", 1, Dtype::f32, 0);
  add("accumulation 4", four, Dtype::f32, 0);
  add("16-bit", 1, Dtype::bf16, 0);
  add("checkpoints", 1, Dtype::f32, 1);
  add("16-bit, checkpoints", 1, Dtype::bf16, 1);
  add("all", four, Dtype::bf16, 1);
  return cases;
}

std::vector<Case> published(std::int64_t batch) {
  std::vector<Case> cases;
  for (const auto& [name, privacy] : privacies)
    cases.push_back({name, "perceptron", batch, {.privacy = privacy}, true});
  return cases;
}

void print(const Case& c) {
  fmt::print("{}\n", measured(c).dump());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) {
    fmt::print(stderr, "usage: bench_memory MODEL|ablation|published BATCH [NAME=VALUE]...\n");
    return 2;
  }
  const std::int64_t batch = std::stoll(arguments[1]);
  std::vector<Case> cases = arguments[0] == "ablation" ? ablation(batch)
                            : arguments[0] == "published"
                                ? published(batch)
                                : std::vector<Case>{{"", arguments[0], batch}};
  for (Case& c : cases) {
    for (std::size_t i = 2; i < arguments.size(); ++i) set(c, arguments[i]);
    print(c);
  }
}
