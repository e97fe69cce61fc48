// The exercises of a memory tutorial on one network: what a step's bytes are by the formulae of
// docs/memory.md, and what the allocator counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sotto::memory_tour {

// Square linear layers without bias, each followed by tanh.
struct Network {
  std::int64_t width = 1024;
  std::int64_t layers = 8;
  std::int64_t batch = 512;
};

// One technique: the bytes that the exercise is about, and what the step as a whole took.
struct Row {
  std::string technique;
  std::int64_t predicted = 0;
  std::int64_t measured = 0;
  std::int64_t peak = 0;  // of everything that was alive at once
  double seconds = 0;
  double x = 0;  // parts, or layers of a segment, where the exercise is a plot over these
};

struct Exercise {
  std::string title;
  std::string counted;  // what `predicted` and `measured` are bytes of
  std::string formula;
  std::vector<Row> rows;  // the first is without any technique
  std::string over = {};  // what `x` counts; empty: no plot
};

// Parameters with their gradients and the optimizer's state; what a batch in parts keeps; what
// checkpoints keep; what 16 bits keep; private steps. Throws std::invalid_argument unless width and
// layers are positive and the batch is a multiple of most_parts.
inline constexpr std::int64_t most_parts = 8;
std::vector<Exercise> tour(const Network& network);

}  // namespace sotto::memory_tour
