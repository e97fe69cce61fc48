// Gaussian noise from secret randomness.
#pragma once

#include <span>

#include "core/random/secret_random.h"

namespace sotto {

// Independent standard normals by Box and Muller 1958, in double precision; element i does not
// depend on the number of threads. Radii come from uniforms of 53 significant bits down to 2^-535,
// so that |z| goes up to 27.24. This is a floating-point Gaussian: its values lie on the grid of
// floating-point results, and a mechanism that releases sums with it must hide that grid
// (Mironov 2012).
void fill_gaussian(SecretRandom& random, std::span<double> out);

}  // namespace sotto
