// Trains on rows of unequal worth, privately, with weights for them; see --help.

#include "samples/reweight/reweight_task.h"
#include "samples/training/program.h"

int main(int argc, char** argv) {
  return sotto::samples::train_command<sotto::reweight::ReweightTask>(argc, argv);
}
