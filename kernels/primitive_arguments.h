// The arguments that configure a primitive of a backend.
#pragma once

namespace sotto {

enum class Reduction { sum, max, min, product };

// The up to two numbers that configure an elementwise operation (a slope, limits, an exponent).
struct Constants {
  double a = 0;  // the first one
  double b = 0;  // the second one
};

// The arguments that a derivative depends on (functors.h).
enum class Reads { nothing, first, second, both };
// True if it depends on the first argument.
constexpr bool reads_first(Reads reads) { return reads == Reads::first || reads == Reads::both; }
// True if it depends on the second argument.
constexpr bool reads_second(Reads reads) { return reads == Reads::second || reads == Reads::both; }

}  // namespace sotto
