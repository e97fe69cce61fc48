// The options of `tabular train`: apart, since they need the library for command lines.
#include "samples/cli/command_line.h"
#include "samples/tabular/tabular_task.h"

namespace sotto::tabular {

void TabularTask::add_data_options(samples::CommandLine& line, samples::Settings& s) {
  using samples::Files;
  samples::add_files_option(line, "--data", source_, &Files::train,
                            "CSV or TSV file of training rows, plain or gzipped", "FILE");
  line.option("--schema", schema_path_, "its columns: kinds, public ranges and categories (JSON)",
              "FILE");
  samples::add_files_option(line, "--test", source_, &Files::test,
                            "file of test rows; otherwise a part of --data is kept for it", "FILE");
  line.option("--test-fraction", test_fraction_, "that part: a fraction of the units", "X");
  line.option("--encode-in", folder_,
              "keep the encoded rows in nameless files on this folder's disk: for tables larger "
              "than memory",
              "DIR");
  line.option("--train-size", s.train_size, "people made up for training, without --data", "N");
  line.option("--test-size", s.test_size, "people made up for the test, without --data", "N");
}

void TabularTask::add_model_options(samples::CommandLine& line) {
  line.choice("--model", network_.model, "network", network_names());
  line.option("--hidden", network_.hidden, "units of a hidden layer", "N");
  line.option("--layers", network_.layers, "hidden layers", "N");
  line.option("--pieces", network_.pieces,
              "inputs that each number becomes, for a piecewise linear function of it", "N");
  line.flag("--no-bias", network_.no_bias,
            "the last layer has none: for vectors, whose gradients a bias would only lengthen");
  line.option("--prototypes", prototypes_,
              "table of PUBLIC rows of each class, such as vectors of the classes' names: --model "
              "logistic starts as the classifier by the nearest of their means",
              "FILE");
  line.option("--prototype-scale", prototype_scale_, "factor of its logits", "X");
  line.conflict("--prototypes", "--standardize");
  line.flag(
      "--standardize", network_.standardize,
      "standardise numbers by means and deviations of the training rows, released with noise: "
      "a part of --epsilon");
  for (const char* other : {"--no-privacy", "--compare"}) line.conflict(other, "--standardize");
  line.option("--embedding", network_.embedding, "numbers that stand for a category", "N");
  line.option("--class-weights", class_weights_text_,
              "factors of the losses of the label's classes, in the schema's order: 0.3,1. PUBLIC: "
              "not from counts of private rows. Clipping undoes weights above 1",
              "LIST");
}

void TabularTask::add_options(samples::CommandLine& line, Options which,
                              samples::Settings& settings) {
  which == Options::data ? add_data_options(line, settings) : add_model_options(line);
}

}  // namespace sotto::tabular
