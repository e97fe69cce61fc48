// Floating-point Gaussian noise from secret randomness.
#pragma once

#include <span>

#include "core/random/secret_random.h"

namespace sotto {

// Fills `out` with independent standard normals (Box and Muller 1958) in f64; element i does not
// depend on the number of threads. Radii come from uniforms with 53 significant bits down to
// 2^-535, so |z| <= 27.24. The values are results of floating-point arithmetic; a mechanism that
// releases sums with them must hide their grid (Mironov 2012).
void fill_gaussian(SecretRandom& random, std::span<double> out);

}  // namespace sotto
