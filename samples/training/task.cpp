#include "samples/training/task.h"

#include "autograd/ops.h"
#include "core/join.h"
#include "nn/predict.h"

namespace sotto::samples {

std::vector<std::string> taken_as_public(const TaskFacts& facts) {
  std::vector<std::string> texts;
  const bool files = files_of(facts.source) != nullptr;
  for (const auto& [name, value, on_resume] : facts.settings) {
    const auto* const text = std::get_if<std::string*>(&value);
    if (!text || (*text)->empty()) continue;
    if (name == std::string_view(init_setting))
      texts.push_back(fmt::format(
          "The data that the weights of {} were trained on: where units of these data were among "
          "them, that training's epsilon is to be added, or there is no guarantee",
          **text));
    if (name == std::string_view(prototypes_setting))
      texts.push_back(fmt::format(
          "The rows of {}, at whose means training starts: they must be public", **text));
    if (name == std::string_view(classes_setting) && files)
      texts.emplace_back("The names of the classes, and their number: they must be public");
    if (name == std::string_view(schema_setting) && files)
      texts.emplace_back(
          "The table's schema, with its columns, categories and ranges: it must be public, or "
          "released with noise");
  }
  return texts;
}

void set_class_names(std::string& setting, const std::vector<std::string>& classes) {
  const std::string names = join(classes, "/");
  check(setting.empty() || setting == names,
        "--resume: the classes are {} here and {} in the checkpoint", names, setting);
  setting = names;
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
