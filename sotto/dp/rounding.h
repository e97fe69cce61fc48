// Numbers as people read them, rounded to the side on which they stay true.
#pragma once

#include <string>

namespace sotto {

// The nearest decimal of so many significant digits that is not below the value, and not above it,
// as reading it back tells: "2.38" for 2.3795, "1.01e-05" for 1.00001e-5, "∞" beyond every number
// of the type. Throw std::invalid_argument unless value >= 0 (infinity included).
std::string rounded_up(double value, int digits);
std::string rounded_down(double value, int digits);

}  // namespace sotto
