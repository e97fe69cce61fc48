#include "samples/tabular/results.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "dp/ledger/ledger_contents.h"
#include "memory/outputs_of.h"
#include "nn/metrics.h"
#include "nn/predict.h"
#include "nn/state.h"
#include "samples/cli/model_file.h"
#include "samples/report/predictions.h"
#include "samples/report/results.h"
#include "samples/tabular/tabular_task.h"

namespace sotto::tabular {

Tensor outputs_of_rows(nn::Module& model, const Dataset& rows) {
  auto& network = dynamic_cast<Network&>(model);
  return memory::outputs_of(model, rows, [&](Tape& tape, const Dataset& part) {
    return forward_rows(network, tape, part);
  });
}

std::string privacy_unit(const TableSchema& schema) {
  const auto user = std::find_if(schema.columns.begin(), schema.columns.end(),
                                 [](const auto& c) { return c.kind == ColumnKind::user; });
  if (user == schema.columns.end()) return LedgerHeader{}.unit;
  return "all rows with one value of " + user->name;
}

void describe_results(const Tensor& outputs, const Tensor& targets, const TableSchema& schema,
                      TrainingReport& report) {
  const std::vector<std::string> classes = schema.classes();
  if (classes.empty()) {
    report.results.push_back(
        {"mean squared error", samples::measure_text(nn::mean_squared_error(outputs, targets))});
    return;
  }
  samples::describe_classes(outputs, targets, classes, report);
}

SavedTableModel load_model(const std::string& path) {
  return samples::load_model_file(path, model_key, [&](const nlohmann::json& model) {
    SavedTableModel saved;
    saved.schema = TableSchema::from_json(model.at("schema").get<std::string>(), path);
    saved.options = {.model = model.at("model").get<std::string>(),
                     .hidden = model.at("hidden").get<std::int64_t>(),
                     .layers = model.at("layers").get<std::int64_t>(),
                     .embedding = model.at("embedding").get<std::int64_t>(),
                     .pieces = model.at("pieces").get<std::int64_t>(),
                     .no_bias = model.value("no_bias", false),  // absent from older files
                     .standardize = model.at("standardize").get<bool>()};
    saved.network = make_network(saved.options, saved.schema);
    nn::load_module(path, *saved.network);
    return saved;
  });
}

std::string prediction_header(const TableSchema& schema) {
  return samples::prediction_header(samples::csv_field(schema.label().name), schema.classes());
}

std::string prediction_lines(const Tensor& outputs, const TableSchema& schema) {
  const std::vector<std::string> classes = schema.classes();
  if (!classes.empty())
    return samples::prediction_lines(outputs, classes, [](std::size_t) { return std::string(); });
  std::string text;
  for (const float value : outputs.to_vector<float>())
    text += fmt::format("{:.9g}\n", schema.label().decode(value));
  return text;
}

}  // namespace sotto::tabular
