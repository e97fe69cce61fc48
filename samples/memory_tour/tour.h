// The exercises of a memory tutorial on one network: a step's bytes by the formulas of
// docs/appendix/memory-notes.md, and as the allocator counts them.
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

// One technique: the bytes that the exercise is about, and those of the whole step.
struct Row {
  std::string technique;
  std::int64_t predicted = 0;
  std::int64_t measured = 0;
  std::int64_t peak = 0;  // peak of all bytes in use
  double seconds = 0;
  double x = 0;  // parts, or layers of a segment, if the exercise is plotted over them
};

struct Exercise {
  std::string title;
  std::string counted;  // the bytes that `predicted` and `measured` count
  std::string formula;
  std::vector<Row> rows;  // the first is without any technique
  std::string over = {};  // the quantity `x`; empty: no plot
};

// The exercises: parameters with gradients and optimizer state; accumulation; activation
// checkpoints; 16-bit values; private steps. Throws std::invalid_argument unless width and layers
// are positive and the batch is a multiple of max_parts.
inline constexpr std::int64_t max_parts = 8;
std::vector<Exercise> tour(const Network& network);

}  // namespace sotto::memory_tour
