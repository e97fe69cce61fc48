// The command line of the sample audit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/device.h"
#include "memory/planning/policy.h"
#include "samples/training/data_source.h"

namespace sotto::audit {

struct Options {
  samples::DataSource data = samples::MadeUp{"drawn by the program"};  // or MNIST's files
  std::int64_t train_size = 2000;

  std::optional<double> noise_multiplier;  // instead of epsilon
  double epsilon = 8;
  double delta = 1e-5;
  double clip_bound = 0.1;
  double batch = 1000;  // logical: the expected number of units in a step
  memory::Policy memory;
  std::int64_t steps = 30;
  double learning_rate = 0.5;

  std::int64_t canaries = 4000;
  std::string on;  // the canaries' parameter; empty: all parameters
  std::string score = "likelihood";
  double confidence = 0.95;
  std::optional<double> claim;  // the epsilon to judge; none: the accountant's

  std::string ledger;  // new, or empty; empty: in memory, for digits drawn by the program
  std::string report, json;
  std::uint64_t seed = 0;  // public randomness
  Device device = cpu;     // device of the model
  int threads = 0;         // 0: all
  bool quiet = false;
};

// Returns nullopt when the program has already answered (--help). Throws std::invalid_argument, in
// one line, for a wrong argument.
std::optional<Options> parse_options(int argc, const char* const* argv);

}  // namespace sotto::audit
