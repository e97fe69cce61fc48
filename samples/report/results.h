// Results of a model as programs print them, write them as JSON, and list them as CSV.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/tensor.h"
#include "nn/data/dataset.h"
#include "samples/report/report.h"

namespace sotto::samples {

// Adds measures of outputs [n, classes] to the report's results, and the confusion matrix if there
// are at most 30 classes.
void describe_classes(const Tensor& outputs, const Tensor& targets,
                      const std::vector<std::string>& classes, TrainingReport& report);
// Adds to the report which of the pictures [n, c, h, w] in [0, 1] the outputs [n, classes] take for
// another class: at most 24, those with the greatest probability first. The pictures are to be such
// as may be shown.
void describe_wrong_pictures(const Tensor& outputs, const Dataset& pictures,
                             const std::vector<std::string>& classes, TrainingReport& report);
// A measure with four decimals.
std::string measure_text(double value);

// Prints the report's results and confusion matrix. `samples` says what was counted: "rows".
void print_results(const TrainingReport& report, const std::string& samples);
// The results by name, which must be numbers, and the confusion matrix.
nlohmann::json results_json(const TrainingReport& report);

}  // namespace sotto::samples
