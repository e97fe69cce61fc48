#include "samples/text/commands.h"

#include <nlohmann/json.hpp>

#include <sotto/core/io/atomic_file.h>
#include "samples/cli/command_line.h"
#include "samples/cli/program.h"
#include "samples/report/results.h"
#include "samples/text/generation.h"
#include "samples/text/results.h"

namespace sotto::text {

int evaluate(int argc, const char* const* argv) {
  std::string model, data, json;
  samples::CommandLine line("Measures a saved model on text.");
  line.group("Options");
  line.option("--model", model, "model that `text train --save` wrote", "FILE");
  line.option("--data", data,
              "text as in training: to classify, a folder with a file or sub-folder for each class",
              "PATH");
  line.option("--json", json, "write the results as JSON", "FILE");
  if (!line.parse(argc, argv)) return 0;
  samples::require_given("--model", model);
  samples::require_given("--data", data);
  samples::check_writable("--json", json);
  const SavedModel saved = load_model(model);
  const Dataset rows = prepared(saved.model, read_text(saved.model, data).data);
  check(rows.size() > 0, "--data: {} has no text", data);
  TrainingReport report;
  describe_results(*saved.network, saved.model, rows, report);
  samples::print("{} units\n", rows.unit_count());
  samples::print_results(report, "units");
  if (!json.empty()) samples::write_text({json, samples::json_text(samples::results_json(report))});
  return 0;
}

int predict(int argc, const char* const* argv) {
  std::string model, data, out;
  samples::CommandLine line("Predicts the class of each unit of a text, such as a line.");
  line.group("Options");
  line.option("--model", model, "model that `text train --task classify --save` wrote", "FILE");
  line.option("--data", data, "text, UTF-8, plain or gzipped; blank lines are no units", "FILE");
  line.option("--out", out, "write predictions here as CSV, a line for each unit", "FILE");
  if (!line.parse(argc, argv)) return 0;
  samples::require_given("--model", model);
  samples::require_given("--data", data);
  samples::require_given("--out", out);
  samples::check_writable("--out", out);
  const SavedModel saved = load_model(model);
  check(!saved.model.generates(), "--model: {} generates text and knows no classes", model);
  const Dataset rows = read_text_files({&data, 1}, saved.model.text_options()).data;
  check(rows.size() > 0, "--data: {} has no text", data);
  const std::string text = predictions(scores_of_units(*saved.network, rows), saved.model.classes);
  samples::write_text({out, text});
  samples::print("{} predictions in {}\n", rows.unit_count(), out);
  return 0;
}

int generate(int argc, const char* const* argv) {
  std::string model;
  GenerateOptions options;
  samples::CommandLine line("Lets a saved language model write.");
  line.group("Options");
  line.option("--model", model, "model that `text train --task generate --save` wrote", "FILE");
  line.option("--prompt", options.prompt, "the beginning, which the model continues", "TEXT");
  line.option("--length", options.length, "symbols to write", "N");
  line.option("--temperature", options.temperature,
              "below 1: likelier text; 0: always the likeliest symbol", "X");
  line.add_seed(options.seed, "draws the symbols");
  if (!line.parse(argc, argv)) return 0;
  samples::require_given("--model", model);
  const SavedModel saved = load_model(model);
  check(saved.model.generates(), "--model: {} tells classes and does not write", model);
  samples::print("{}\n", generate_text(*saved.network, saved.model, options));
  return 0;
}

}  // namespace sotto::text
