#include "samples/tabular/results.h"

#include <algorithm>
#include <iterator>

#include <nlohmann/json.hpp>

#include <sotto/core/error.h>
#include <sotto/core/io/safetensors.h>
#include <sotto/dp/engine/training_checkpoint.h>
#include <sotto/nn/functional.h>
#include <sotto/nn/metrics.h>
#include <sotto/nn/predict.h>
#include <sotto/nn/state.h>
#include "samples/report/results.h"
#include "samples/tabular/tabular_task.h"
#include "samples/training/evaluation.h"

namespace sotto::tabular {

namespace {

std::string fraction_text(double value) { return fmt::format("{:.4f}", value); }

std::vector<float> probabilities(const Tensor& outputs) {
  Tape tape({.training = false});
  return softmax(tape.input(outputs), 1).value().to_vector<float>();
}

}  // namespace

Tensor outputs_of_rows(nn::Module& model, const Dataset& rows) {
  auto& network = dynamic_cast<Network&>(model);
  return samples::outputs_of(model, rows, [&](Tape& tape, const Dataset& part) {
    return forward_rows(network, tape, part);
  });
}

std::string user_column(const TableSchema& schema) {
  const auto user = std::find_if(schema.columns.begin(), schema.columns.end(),
                                 [](const auto& c) { return c.kind == ColumnKind::user; });
  return user->name;
}

void describe_results(const Tensor& outputs, const Tensor& targets, const TableSchema& schema,
                      TrainingReport& report) {
  const std::vector<std::string> classes = schema.classes();
  auto& results = report.results;
  if (classes.empty()) {
    results.push_back(
        {"mean squared error", fraction_text(nn::mean_squared_error(outputs, targets))});
    return;
  }
  const Tensor confusion = nn::confusion_matrix(outputs, targets);
  report.confusion = {classes, confusion.to_vector<std::int64_t>()};
  std::vector<std::int64_t> counts(classes.size());
  for (const std::int64_t target : targets.to_vector<std::int64_t>())
    ++counts[static_cast<std::size_t>(target)];
  results.push_back({"accuracy", fraction_text(nn::accuracy(outputs, targets))});
  const double most = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
  results.push_back({"accuracy of always the most frequent class",
                     fraction_text(most / static_cast<double>(targets.numel()))});
  results.push_back({"F1 score, mean of the classes", fraction_text(nn::macro_f1(confusion))});
  const bool both = std::count(counts.begin(), counts.end(), 0) == 0;
  if (classes.size() == 2 && both)
    results.push_back({"area under the ROC curve", fraction_text(nn::auc(outputs, targets))});
  const auto calibration = nn::calibration_curve(outputs, targets);
  results.push_back(
      {"expected calibration error", fraction_text(nn::expected_calibration_error(calibration))});
}

SavedModel load_model(const std::string& path) {
  const TensorFile file = load_safetensors(path);
  const auto found = file.metadata.find(model_key);
  if (found == file.metadata.end())
    throw SystemFailure(fmt::format("{}: not a model of this program: no {}", path, model_key));
  SavedModel saved;
  try {
    const nlohmann::json model = nlohmann::json::parse(found->second);
    saved.schema = TableSchema::from_json(model.at("schema").get<std::string>(), path);
    saved.options = {.model = model.at("model").get<std::string>(),
                     .hidden = model.at("hidden").get<std::int64_t>(),
                     .layers = model.at("layers").get<std::int64_t>(),
                     .embedding = model.at("embedding").get<std::int64_t>(),
                     .pieces = model.at("pieces").get<std::int64_t>()};
    saved.network = make_network(saved.options, saved.schema);
    nn::load_module(path, *saved.network);
  } catch (const nlohmann::json::exception& error) {
    throw SystemFailure(fmt::format("{}: {}: {}", path, model_key, error.what()));
  } catch (const std::invalid_argument& error) {
    throw SystemFailure(fmt::format("{}: not a model of this program: {}", path, error.what()));
  }
  if (const auto statement = file.metadata.find(statement_key); statement != file.metadata.end())
    saved.statement = statement->second;
  return saved;
}

std::string prediction_header(const TableSchema& schema) {
  std::string line = samples::csv_field(schema.label().name);
  for (const std::string& name : schema.classes())
    line += "," + samples::csv_field("p(" + name + ")");
  return line + "\n";
}

std::string prediction_lines(const Tensor& outputs, const TableSchema& schema) {
  const std::vector<std::string> classes = schema.classes();
  std::string text;
  if (classes.empty()) {
    for (const float value : outputs.to_vector<float>())
      fmt::format_to(std::back_inserter(text), "{:.9g}\n", schema.label().decode(value));
    return text;
  }
  const std::vector<float> all = probabilities(outputs);
  for (std::size_t row = 0; row < all.size(); row += classes.size()) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row);
    const auto end = begin + static_cast<std::ptrdiff_t>(classes.size());
    text +=
        samples::csv_field(classes[static_cast<std::size_t>(std::max_element(begin, end) - begin)]);
    for (auto p = begin; p != end; ++p) fmt::format_to(std::back_inserter(text), ",{:.6f}", *p);
    text += '\n';
  }
  return text;
}

}  // namespace sotto::tabular
