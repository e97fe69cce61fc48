// The common part of the commands `evaluate` and `predict`, which use a saved model.
#pragma once

#include <cstdint>
#include <string>

#include "samples/cli/command_line.h"

namespace sotto {
struct TrainingReport;
}

namespace sotto::samples {

class ModelCommand {
 public:
  // Words of the help.
  struct Text {
    const char* about;
    const char* train;  // the command that saves such a model
    const char* data;
    const char* type;  // of --data
    const char* row;   // what is counted: "row"
  };
  // Declares --model and --data, and --json of `evaluate` or --out of `predict`.
  static ModelCommand evaluate(const Text& text);
  static ModelCommand predict(const Text& text);

  // Returns false if the help was requested; it has been printed then. Throws
  // std::invalid_argument for wrong arguments, and a file that cannot be written.
  bool parse(int argc, const char* const* argv);
  // evaluate: prints the results on so many rows, and writes them to --json.
  void tell_results(const TrainingReport& report, std::int64_t count) const;
  // predict: prints how many predictions are in --out.
  void tell_predictions(std::int64_t count) const;

  CommandLine line;
  std::string model, data, out;  // the values of the options

 private:
  ModelCommand(const Text& text, bool predicts);

  std::string row_;
  bool predicts_;
};

}  // namespace sotto::samples
