#include "samples/text/results.h"

#include <cmath>
#include <iterator>

#include "autograd/ops.h"
#include "core/error.h"
#include "memory/outputs_of.h"
#include "nn/metrics.h"
#include "nn/predict.h"
#include "samples/report/predictions.h"
#include "samples/report/results.h"

namespace sotto::text {

namespace {

// True if row k is the first one of its unit.
bool begins_unit(const Dataset& rows, std::size_t k) {
  return k == 0 || rows.units.empty() || rows.units[k] != rows.units[k - 1];
}

}  // namespace

Var outputs_of_part(const TextModel& model, nn::Module& network, Tape& tape, const Dataset& part) {
  const Var outputs = forward_rows(dynamic_cast<Network&>(network), tape, part);
  if (!model.generates()) return log_softmax(outputs, 1);
  return sum(
      cross_entropy_elements(outputs, part.targets, {.class_axis = 2, .ignore_index = ignored}),
      {1});
}

Tensor outputs_of_rows(const TextModel& model, nn::Module& network, const Dataset& rows) {
  return memory::outputs_of(network, rows, [&](Tape& tape, const Dataset& part) {
    return outputs_of_part(model, network, tape, part);
  });
}

Tensor scores_of_units(const Tensor& outputs, const Dataset& rows) {
  const auto classes = static_cast<std::size_t>(outputs.shape()[1]);
  const std::vector<float> of_rows = outputs.to_vector<float>();
  std::vector<float> scores;
  float of_unit = 0;  // rows
  for (std::size_t k = 0; k < of_rows.size() / classes; ++k) {
    of_unit = begins_unit(rows, k) ? 1 : of_unit + 1;
    if (of_unit == 1) scores.resize(scores.size() + classes);
    for (std::size_t c = 0; c < classes; ++c) {
      float& mean = scores[scores.size() - classes + c];
      mean += (of_rows[k * classes + c] - mean) / of_unit;
    }
  }
  const auto units = static_cast<std::int64_t>(scores.size() / classes);
  return Tensor::from(scores, {units, outputs.shape()[1]});
}

Tensor classes_of_units(const Dataset& rows) {
  const std::vector<std::int64_t> of_rows = rows.targets.to_vector<std::int64_t>();
  std::vector<std::int64_t> of_units;
  for (std::size_t k = 0; k < of_rows.size(); ++k) {
    if (begins_unit(rows, k)) of_units.push_back(of_rows[k]);
  }
  return Tensor::from(of_units, {std::ssize(of_units)});
}

double nats_per_character(const Tensor& outputs, const Dataset& rows) {
  double nats = 0, count = 0;
  for (const float sum : outputs.to_vector<float>()) nats += sum;
  for (const std::int64_t length : rows.field("lengths").to_vector<std::int64_t>())
    count += static_cast<double>(length);
  return nats / count;
}

void describe_results(const TextModel& model, const Tensor& outputs, const Dataset& rows,
                      TrainingReport& report) {
  if (!model.generates()) {
    samples::describe_classes(scores_of_units(outputs, rows), classes_of_units(rows), model.classes,
                              report);
    return;
  }
  const double nats = nats_per_character(outputs, rows);
  report.results.push_back({"nats per character", samples::measure_text(nats)});
  report.results.push_back({"perplexity", samples::measure_text(std::exp(nats))});
}

std::string predictions(const Tensor& scores, const std::vector<std::string>& classes) {
  const auto number = [](std::size_t unit) { return fmt::format("{},", unit + 1); };
  return samples::prediction_header("unit,class", classes) +
         samples::prediction_lines(scores, classes, number);
}

}  // namespace sotto::text
