#include "samples/tabular/results.h"

#include <algorithm>
#include <iterator>

#include <nlohmann/json.hpp>

#include <sotto/autograd/ops/reductions.h>
#include <sotto/autograd/tape.h>
#include <sotto/core/error.h>
#include <sotto/dp/ledger/ledger_contents.h>
#include <sotto/nn/functional.h>
#include <sotto/nn/metrics.h>
#include <sotto/nn/predict.h>
#include <sotto/nn/state.h>
#include "samples/report/results.h"
#include "samples/tabular/tabular_task.h"
#include "samples/training/evaluation.h"
#include "samples/training/model_file.h"

namespace sotto::tabular {

namespace {

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

SavedModel load_model(const std::string& path) {
  return samples::load_model_file(path, model_key, [&](const nlohmann::json& model) {
    SavedModel saved;
    saved.schema = TableSchema::from_json(model.at("schema").get<std::string>(), path);
    saved.options = {.model = model.at("model").get<std::string>(),
                     .hidden = model.at("hidden").get<std::int64_t>(),
                     .layers = model.at("layers").get<std::int64_t>(),
                     .embedding = model.at("embedding").get<std::int64_t>(),
                     .pieces = model.at("pieces").get<std::int64_t>(),
                     .standardize = model.at("standardize").get<bool>()};
    saved.network = make_network(saved.options, saved.schema);
    nn::load_module(path, *saved.network);
    return saved;
  });
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
      text += fmt::format("{:.9g}\n", schema.label().decode(value));
    return text;
  }
  const std::vector<float> all = probabilities(outputs);
  for (std::size_t row = 0; row < all.size(); row += classes.size()) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row);
    const auto end = begin + static_cast<std::ptrdiff_t>(classes.size());
    text +=
        samples::csv_field(classes[static_cast<std::size_t>(std::max_element(begin, end) - begin)]);
    for (auto p = begin; p != end; ++p) text += fmt::format(",{:.6f}", *p);
    text += '\n';
  }
  return text;
}

}  // namespace sotto::tabular
