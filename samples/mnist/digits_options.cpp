// The options of the sample mnist: apart, since they need the library for command lines.
#include "samples/cli/command_line.h"
#include "samples/mnist/digits_task.h"
#include "samples/models/models.h"

namespace sotto::mnist {

void DigitsTask::add_options(samples::CommandLine& line, Options which, samples::Settings& s) {
  if (which == Options::model) {
    line.choice("--activation", activation_, "nonlinearity", models::activation_names());
    return;
  }
  samples::add_files_option(line, "--data", source_, &samples::Files::train,
                            "read MNIST from this folder (IDX files, plain or gzipped)", "DIR");
  line.option("--train-size", s.train_size, "training samples, at most", "N");
  line.option("--test-size", s.test_size, "test samples, at most", "N");
  line.flag("--normalize", normalize_, "shift and scale pixels by MNIST's public constants");
}

}  // namespace sotto::mnist
