// Trains on rows of unequal worth, privately, with weights for them; see --help.

#include "samples/reweight/reweight_task.h"
#include "samples/training/program.h"

int main(int argc, char** argv) {
  sotto::reweight::ReweightTask task;
  return sotto::samples::train_program(task, argc, argv);
}
