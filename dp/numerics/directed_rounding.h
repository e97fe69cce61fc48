// Decimal texts of numbers, rounded to the side on which a statement about them stays true.
#pragma once

#include <string>

namespace sotto {

// The number of significant digits, unless another is given.
inline constexpr int shown_digits = 4;

// The nearest decimal with so many significant digits that is not below (rounded_up) or not above
// (rounded_down) the value when read back: "2.38" for 2.3795, "1.01e-05" for 1.00001e-5, "∞" if it
// would overflow. Throw std::invalid_argument unless value >= 0 (infinity included).
std::string rounded_up(double value, int digits = shown_digits);
// The nearest such decimal that is not above the value.
std::string rounded_down(double value, int digits = shown_digits);

// Texts of privacy numbers wherever they are printed; they never understate the privacy loss.
// Epsilon and delta are rounded up, the noise multiplier of releases down; delta and noise have six
// digits.
std::string epsilon_text(double epsilon, int digits = shown_digits);
// delta, rounded up.
std::string delta_text(double delta);
// The noise multiplier of releases, rounded down.
std::string noise_text(double noise_multiplier);

// A number that a user gave, to six digits: "0.00426667".
std::string shown(double value);

}  // namespace sotto
