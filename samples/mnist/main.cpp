// Trains a network to read digits with differential privacy; see --help.

#include "samples/mnist/digits_task.h"
#include "samples/training/program.h"

int main(int argc, char** argv) {
  return sotto::samples::train_command<sotto::mnist::DigitsTask>(argc, argv);
}
