// The command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <sotto/core/device.h>
#include <sotto/memory/planning/policy.h>

namespace sotto::audit {

struct Options {
  std::string data;  // a folder of MNIST files; empty: digits drawn here
  std::int64_t train_size = 2000;

  std::optional<double> noise_multiplier;  // instead of epsilon
  double epsilon = 8;
  double delta = 1e-5;
  double clip_bound = 0.1;
  double batch = 1000;  // logical: the expected number of units of a step
  memory::Policy memory;
  std::int64_t steps = 30;
  double learning_rate = 0.5;

  std::int64_t canaries = 4000;
  std::string on;  // the parameter that has the canaries; empty: all
  std::string score = "likelihood";
  double confidence = 0.95;
  std::optional<double> claim;  // the epsilon that is judged; none: the accountant's

  std::string report, json;
  std::uint64_t seed = 0;  // public randomness
  Device device = cpu;     // where the model is trained
  int threads = 0;         // 0: all
  bool quiet = false;
};

// Nothing when the program has already answered (--help). Throws std::invalid_argument, in one
// line, for what is wrong.
std::optional<Options> parse_options(int argc, const char* const* argv);

}  // namespace sotto::audit
