// Trains on the rows of a table with differential privacy, and uses the model; see --help.

#include "samples/cli/subcommands.h"
#include "samples/tabular/commands.h"
#include "samples/tabular/tabular_task.h"
#include "samples/training/program.h"

namespace {

int train(int argc, const char* const* argv) {
  sotto::tabular::TabularTask task;
  return sotto::samples::train_program(task, argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace sotto::tabular;
  return sotto::samples::run_subcommand(
      {.name = "tabular",
       .about = "Learns from the rows of a table with differential privacy.",
       .examples =
           R"(    sotto-tabular train --data adult.data --schema adult.json --epsilon 1 --save adult.safetensors --report adult.html
    sotto-tabular evaluate --model adult.safetensors --data adult.test
    sotto-tabular predict --model adult.safetensors --data people.csv --out predictions.csv
)"},
      {{"train", "trains a model; without --data, on people made up by the program", train},
       {"evaluate", "measures a model on rows with labels", evaluate},
       {"predict", "predicts the labels of rows", predict},
       {"schema", "proposes a schema: the public description of a table's columns", schema},
       {"people", "writes a table of people made up by the program, to try the others on", people}},
      argc, argv);
}
