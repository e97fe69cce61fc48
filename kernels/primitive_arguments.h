// The arguments that configure a primitive of a backend.
#pragma once

namespace sotto {

enum class Reduction { sum, max, min, product };

// The up to two numbers that configure an elementwise operation (a slope, limits, an exponent).
struct Constants {
  double a = 0;
  double b = 0;
};

// The arguments that a derivative depends on (functors.h).
enum class Reads { nothing, first, second, both };
constexpr bool reads_first(Reads reads) { return reads == Reads::first || reads == Reads::both; }
constexpr bool reads_second(Reads reads) { return reads == Reads::second || reads == Reads::both; }

}  // namespace sotto
