// The ten digits as people write them: the strokes that digits.h bends, scales and inks.
#pragma once

#include <array>
#include <vector>

namespace sotto {

struct Point {
  float x;
  float y;
};

// A point that the pen passes, in a box of height 1 about the origin, x to the right, y downwards.
// The line is smooth at the point unless it is a corner.
struct Knot {
  Point at;
  bool corner = false;
};

using Stroke = std::vector<Knot>;

// One way of writing a digit: its strokes, and its weight when a way is chosen at random.
struct Writing {
  double weight;
  std::vector<Stroke> strokes;
};

// The ways of writing each digit, at least three of each.
const std::array<std::vector<Writing>, 10>& digit_writings();

}  // namespace sotto
