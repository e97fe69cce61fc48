// Trains with settings that are learned in the same private training, or sweeps; see --help.

#include "samples/training/program.h"
#include "samples/tune/sweep.h"
#include "samples/tune/tune_task.h"

int main(int argc, char** argv) {
  using namespace sotto;
  tune::TuneTask task;
  const auto body = [&](const samples::Options& options, const samples::Data& data,
                        const std::shared_ptr<Ranks>& ranks) {
    return task.sweep().settings == 0 ? samples::train(task, options, data, ranks)
                                      : tune::sweep(task, options, data);
  };
  return samples::program(task, argc, argv, body);
}
