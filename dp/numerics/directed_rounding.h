// Numbers as people read them, rounded to the side on which they stay true.
#pragma once

#include <string>

namespace sotto {

// Of rounded numbers, unless another number is given.
inline constexpr int shown_digits = 4;

// The nearest decimal of so many significant digits that is not below the value, and not above it,
// as reading it back tells: "2.38" for 2.3795, "1.01e-05" for 1.00001e-5, "∞" beyond every number
// of the type. Throw std::invalid_argument unless value >= 0 (infinity included).
std::string rounded_up(double value, int digits = shown_digits);
std::string rounded_down(double value, int digits = shown_digits);

// Texts of the numbers of privacy, wherever they are printed: they never tell less than was spent.
// Epsilon and delta are rounded up, the noise multiplier of releases down, delta and noise to six
// digits.
std::string epsilon_text(double epsilon, int digits = shown_digits);
std::string delta_text(double delta);
std::string noise_text(double noise_multiplier);

// A number that somebody gave, to six digits: "0.00426667".
std::string shown(double value);

}  // namespace sotto
