// Trains a network to read digits with differential privacy; see --help.

#include "samples/cli/program.h"
#include "samples/mnist/options.h"
#include "samples/mnist/run.h"

int main(int argc, char** argv) {
  using sotto::samples::ending;
  std::optional<sotto::mnist::Options> options;
  sotto::mnist::Data data;
  const int prepared = ending("mnist", [&] {
    options = sotto::mnist::parse_options(argc, argv);
    if (options) data = sotto::mnist::prepare(*options);
    return 0;
  });
  if (prepared != 0 || !options) return prepared;
  const auto run = [&] {
    sotto::mnist::watch_for_signals();
    return sotto::mnist::run(*options, data);
  };
  return ending("mnist", run, sotto::samples::failure);
}
