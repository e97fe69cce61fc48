// Trains on the rows of a table with differential privacy, and uses the model; see --help.

#include <functional>
#include <map>
#include <string>

#include "samples/cli/program.h"
#include "samples/tabular/commands.h"
#include "samples/tabular/tabular_task.h"
#include "samples/training/program.h"

namespace {

using Command = std::function<int(int, const char* const*)>;

constexpr const char* help = R"(Learns from the rows of a table with differential privacy.

Usage: tabular COMMAND [OPTIONS]; tabular COMMAND --help lists the options of a command.

Subcommands:
  train       trains a model; without --data, on people made up by the program
  evaluate    measures a model on rows with labels
  predict     predicts the labels of rows
  schema      proposes a schema: the public description of a table's columns
  people      writes a table of people made up by the program, to try the others on

For example:
    tabular train --data adult.data --schema adult.json --epsilon 1 --save adult.safetensors --report adult.html
    tabular evaluate --model adult.safetensors --data adult.test
    tabular predict --model adult.safetensors --data people.csv --out predictions.csv
)";

int train(int argc, const char* const* argv) {
  sotto::tabular::TabularTask task;
  return sotto::samples::train_program(task, argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, Command> commands = {{"train", train},
                                                   {"evaluate", sotto::tabular::evaluate},
                                                   {"predict", sotto::tabular::predict},
                                                   {"schema", sotto::tabular::schema},
                                                   {"people", sotto::tabular::people}};
  const std::string wanted = argc > 1 ? argv[1] : "";
  return sotto::samples::ending("tabular", [&] {
    if (wanted == "--help" || wanted == "-h" || wanted == "help") {
      sotto::samples::print_text(help);
      return 0;
    }
    const auto command = commands.find(wanted);
    sotto::check(command != commands.end(),
                 "{}: give train, evaluate, predict, schema or people (--help says more)",
                 wanted.empty() ? "no command" : "no command is called " + wanted);
    return command->second(argc - 1, argv + 1);
  });
}
