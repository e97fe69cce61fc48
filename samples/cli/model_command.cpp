#include "samples/cli/model_command.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "samples/cli/program.h"
#include "samples/report/results.h"

namespace sotto::samples {

ModelCommand ModelCommand::evaluate(const Text& text) { return {text, false}; }
ModelCommand ModelCommand::predict(const Text& text) { return {text, true}; }

ModelCommand::ModelCommand(const Text& text, bool predicts)
    : line(text.about), row_(text.row), predicts_(predicts) {
  line.group("Options");
  line.option("--model", model, fmt::format("model that `{}` wrote", text.train), "FILE");
  line.option("--data", data, text.data, text.type);
  if (predicts) {
    line.option("--out", out,
                fmt::format("write predictions here as CSV, a line for each {}", row_), "FILE");
  } else {
    line.option("--json", out, "write the results as JSON", "FILE");
  }
}

bool ModelCommand::parse(int argc, const char* const* argv) {
  if (!line.parse(argc, argv)) return false;
  require_given("--model", model);
  require_given("--data", data);
  if (predicts_) require_given("--out", out);
  check_writable(predicts_ ? "--out" : "--json", out);
  return true;
}

void ModelCommand::tell_results(const TrainingReport& report, std::int64_t count) const {
  print("{} {}s\n", count, row_);
  print_results(report, row_ + "s");
  if (!out.empty()) write_text({out, json_text(results_json(report))});
}

void ModelCommand::tell_predictions(std::int64_t count) const {
  print("{} predictions in {}\n", count, out);
}

}  // namespace sotto::samples
