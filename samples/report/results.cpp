#include "samples/report/results.h"

#include <nlohmann/json.hpp>

#include "samples/cli/program.h"

namespace sotto::samples {

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

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

}  // namespace sotto::samples
