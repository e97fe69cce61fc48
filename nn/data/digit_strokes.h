// How people write the ten digits: the strokes that digits.h bends, scales and inks.
#pragma once

#include <array>
#include <vector>

namespace sotto {

struct Point {
  float x;
  float y;
};

// A point the pen passes, in a box of height 1 about the origin, x to the right, y downwards. The
// line is smooth through it unless it is a corner.
struct Knot {
  Point at;
  bool corner = false;
};

using Stroke = std::vector<Knot>;

// One way of writing a digit: strokes, and how often it is chosen relative to its siblings.
struct Writing {
  double weight;
  std::vector<Stroke> strokes;
};

// The ways of writing each digit, at least three of each.
const std::array<std::vector<Writing>, 10>& digit_writings();

}  // namespace sotto
