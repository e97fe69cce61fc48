#include "samples/training/task.h"

#include <algorithm>

#include "autograd/ops.h"
#include "nn/predict.h"

namespace sotto::samples {

bool ModelPart::has(const std::string& name) const {
  return std::ranges::any_of(
      paths, [&](const std::string& path) { return name == path || name.starts_with(path + "."); });
}

std::string data_text(const TaskFacts& facts) {
  return text_of(facts.source) + (facts.more_data.empty() ? "" : "; " + facts.more_data);
}

Var Task::losses(Tape& tape, nn::Module& model, const Dataset& batch) {
  return cross_entropy(model(tape.input(batch.inputs)), batch.targets);
}

double Task::evaluate(nn::Module& /*model*/, const Tensor& outputs, const Data& data,
                      TrainingReport* /*report*/) {
  return nn::accuracy(outputs, data.test.targets);
}

nlohmann::json settings_json(Task& task) {
  nlohmann::json values = nlohmann::json::object();
  for (const TaskSetting& setting : task.facts().settings)
    std::visit([&](const auto* value) { values[setting.name] = *value; }, setting.value);
  return values;
}

void assign(Task& task, const nlohmann::json& values) {
  for (const TaskSetting& setting : task.facts().settings) {
    const auto found = values.find(setting.name);
    if (found == values.end()) continue;
    std::visit([&](auto* value) { found->get_to(*value); }, setting.value);
  }
}

nlohmann::json all_settings(const Settings& settings, Task& task) {
  nlohmann::json all = to_json(settings);
  all.update(settings_json(task));
  return all;
}

std::string differences(const Settings& settings, Task& task, const nlohmann::json& there) {
  const nlohmann::json ours = all_settings(settings, task);
  std::string text;
  const auto compare = [&](const char* name, OnResume on_resume) {
    const auto theirs = there.find(name);
    if (on_resume == OnResume::may_change || theirs == there.end() || ours[name] == *theirs) return;
    text += fmt::format("{}{} is {} here and {} in the checkpoint", text.empty() ? "" : "; ", name,
                        ours[name].dump(), theirs->dump());
  };
  visit_settings(settings,
                 [&](const char* name, const auto&, OnResume how) { compare(name, how); });
  for (const TaskSetting& setting : task.facts().settings) compare(setting.name, setting.on_resume);
  return text;
}

}  // namespace sotto::samples
