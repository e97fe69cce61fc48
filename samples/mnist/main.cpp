// Trains a network to read digits with differential privacy; see --help.

#include "samples/mnist/digits_task.h"
#include "samples/training/program.h"

int main(int argc, char** argv) {
  sotto::mnist::DigitsTask task;
  return sotto::samples::train_program(task, argc, argv);
}
