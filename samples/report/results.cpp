#include "samples/report/results.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "nn/data/images/encode_png.h"
#include "nn/metrics.h"
#include "nn/predict.h"
#include "samples/cli/program.h"

namespace sotto::samples {

std::string measure_text(double value) { return fmt::format("{:.4f}", value); }

void describe_classes(const Tensor& outputs, const Tensor& targets,
                      const std::vector<std::string>& classes, TrainingReport& report) {
  constexpr std::size_t classes_to_read = 30;  // in a confusion matrix
  constexpr std::size_t classes_for_top5 = 10;
  const auto add = [&](const char* name, double value) {
    report.results.push_back({name, measure_text(value)});
  };
  const Tensor confusion = nn::confusion_matrix(outputs, targets);
  if (classes.size() <= classes_to_read)
    report.confusion = {classes, confusion.to_vector<std::int64_t>()};
  std::vector<std::int64_t> counts(classes.size());
  for (const std::int64_t target : targets.to_vector<std::int64_t>())
    ++counts[static_cast<std::size_t>(target)];
  const double most = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
  add("accuracy", nn::accuracy(outputs, targets));
  add("accuracy of always the most frequent class", most / static_cast<double>(targets.numel()));
  if (classes.size() > classes_for_top5)
    add("accuracy of the five most likely classes", nn::top_k_accuracy(outputs, targets, 5));
  add("F1 score, mean of the classes", nn::macro_f1(confusion));
  if (classes.size() == 2 && std::count(counts.begin(), counts.end(), 0) == 0)
    add("area under the ROC curve", nn::auc(outputs, targets));
  add("expected calibration error",
      nn::expected_calibration_error(nn::calibration_curve(outputs, targets)));
}

void describe_wrong_pictures(const Tensor& outputs, const Dataset& pictures,
                             const std::vector<std::string>& classes, TrainingReport& report) {
  constexpr std::size_t most_pictures = 24;
  struct Wrong {
    double probability;
    std::int64_t picture, predicted, label;
  };
  std::vector<Wrong> all;
  Tape tape({.training = false});
  const Tensor probabilities = softmax(tape.input(outputs), 1).value();
  for (std::int64_t k = 0; k < pictures.size(); ++k) {
    const std::vector<float> row = probabilities[k].to_vector<float>();
    const auto best = std::max_element(row.begin(), row.end());
    const std::int64_t predicted = best - row.begin();
    const auto label = static_cast<std::int64_t>(pictures.targets.at({k}));
    if (predicted != label) all.push_back({static_cast<double>(*best), k, predicted, label});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Wrong& a, const Wrong& b) { return a.probability > b.probability; });
  if (all.size() > most_pictures) all.resize(most_pictures);
  for (const Wrong& wrong : all) {
    report.wrong_pictures.push_back(
        {.png = encode_png(pictures.inputs[wrong.picture]),
         .label = classes[static_cast<std::size_t>(wrong.label)],
         .predicted = classes[static_cast<std::size_t>(wrong.predicted)],
         .probability = wrong.probability});
  }
}

void print_results(const TrainingReport& report, const std::string& samples) {
  for (const auto& [name, value] : report.results) print("{:<46}{}\n", name, value);
  if (!report.confusion) return;
  print("\n{} of each class, by what they were taken for\n", samples);
  print_text(report.confusion->to_text());
}

nlohmann::json results_json(const TrainingReport& report) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, value] : report.results) object[name] = nlohmann::json::parse(value);
  if (report.confusion) {
    object["classes"] = report.confusion->classes;
    object["confusion"] = report.confusion->counts;
  }
  return object;
}

}  // namespace sotto::samples
