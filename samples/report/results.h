// Results of a model as programs print them, write them as JSON, and list them as CSV.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "samples/report/report.h"

namespace sotto::samples {

// Prints the report's results and confusion matrix. `samples` says what was counted: "rows".
void print_results(const TrainingReport& report, const std::string& samples);
// The results by name, which must be numbers, and the confusion matrix.
nlohmann::json results_json(const TrainingReport& report);

// The text as a field of a CSV file (RFC 4180).
std::string csv_field(const std::string& text);

}  // namespace sotto::samples
